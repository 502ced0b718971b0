"""Images as rows: which there are, how they are read, and what a network is given of them."""
