"""The stand-in is no test: nothing may import it but the process under test."""

collect_ignore = ["standin"]
