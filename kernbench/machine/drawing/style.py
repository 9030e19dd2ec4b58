"""Colours of the picture of a machine.

From Okabe and Ito's palette: told apart by every common kind of colour vision, and by lightness in print.
"""

PE_FILL, MEMORY_FILL, CUBE_FILL, SIP_FILL = "#a9d8f2", "#f3c35a", "#ffffff", "#f4f4f4"
PE_LINK, CUBE_LINK, SIP_LINK, OWN_LINK = "#7a7a7a", "#0072b2", "#d55e00", "#b0307a"
INK, FRAME = "#222222", "#8a8a8a"
