"""Library part of the stand-in."""

from .common._fmha_common import FmhaCommonSpec, FmhaShape
from .common.sage_attention import (
    SageAttentionSpec,
    build_sage_attention,
    sage_attention_grid,
    sage_attention_signature,
)
from .common.sage_attention import is_valid_spec as is_valid_sage_attention_spec
from .common.sparse_attention import (
    JengaSparseSpec,
    VsaSparseSpec,
    build_jenga_sparse_attention,
    build_vsa_sparse_attention,
    is_valid_jenga_spec,
    is_valid_vsa_spec,
    jenga_sparse_attention_grid,
    jenga_sparse_attention_signature,
    vsa_sparse_attention_grid,
    vsa_sparse_attention_signature,
)

__all__ = [
    "FmhaCommonSpec",
    "FmhaShape",
    "JengaSparseSpec",
    "SageAttentionSpec",
    "VsaSparseSpec",
    "build_jenga_sparse_attention",
    "build_sage_attention",
    "build_vsa_sparse_attention",
    "is_valid_jenga_spec",
    "is_valid_sage_attention_spec",
    "is_valid_vsa_spec",
    "jenga_sparse_attention_grid",
    "jenga_sparse_attention_signature",
    "sage_attention_grid",
    "sage_attention_signature",
    "vsa_sparse_attention_grid",
    "vsa_sparse_attention_signature",
]

print("the stand-in prints when it is imported")
