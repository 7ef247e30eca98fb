"""The paper's tables and figures as data, and the command that runs them."""
