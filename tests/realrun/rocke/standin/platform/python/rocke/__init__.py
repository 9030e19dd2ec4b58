"""Platform part of the stand-in."""
