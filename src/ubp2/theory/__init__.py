"""The theory of the paper as running code: exact Gaussian processes, information gain, optimism and regret.

Everything is float64 NumPy on systems small enough that returns, optima and bonuses are computed, not sampled, so that
an inequality that fails has failed. `docs/theory.md` maps each statement of the paper to a function, a test and a
figure.
"""
