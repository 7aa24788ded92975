"""A method's score for people: the card in the terminal, its page, and the leaderboard."""
