"""The colours of figures: seen on white and on black, and told apart by people of every colour vision."""

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#b7578f", "#b27700", "#2f8fc4", "#7a7a7a")
"""Okabe and Ito's colours, which people of every colour vision can distinguish, with a contrast of 3 to white and black."""
GREY = "#777777"
UTILITY = "#6e6e6e"
"""Of the model's own figures: seen on white and on black."""
