"""Every number that the paper prints about its experiments, as printed: percent, standard error in brackets.

A star is the paper's mark: UBP2 is ahead of this method by a Wilcoxon signed-rank test (p < 0.05).
"""

# ruff: noqa: E501 (tables as the paper has them)

from __future__ import annotations

import re
from collections.abc import Mapping

from ubp2.evaluation.tables import Published

__all__ = ["ABLATION", "CONSERVATIVE", "HORIZON", "MAIN", "PRINTED", "SELECTION", "Published", "Table", "at_horizon"]


Table = Mapping[str, Mapping[str, Published]]  # method -> task -> entry

_ENTRY = re.compile(r"(?P<value>[\d.]+)\((?P<error>[\d.]+)\)(?P<star>\*?)")


def _table(text: str) -> Table:
    """Tasks in the first line, a method in each further one."""
    head, *rows = (line.split() for line in text.strip().splitlines())
    return {
        row[0]: {f"metaworld/{task}": _entry(cell) for task, cell in zip(head, row[1:], strict=True)} for row in rows
    }


def _entry(cell: str) -> Published:
    found = _ENTRY.fullmatch(cell)
    if found is None:
        raise ValueError(f"expected value(error), got {cell}")
    return Published(float(found["value"]), float(found["error"]), bool(found["star"]))


# fmt: off
MAIN = _table("""
     door-close  window-close handle-press coffee-button faucet-open door-open   door-unlock sweep-into drawer-open hammer
ubp2 97.8(1.0)   93.1(1.0)    93.4(0.0)    86.2(3.7)     89.5(7.9)   70.7(10.4)  85.8(2.1)   36.4(12.3) 77.7(4.9)   29.9(11.5)
mbp  95.6(0.0)*  74.7(13.5)*  90.8(4.0)*   75.3(10.7)    83.6(5.0)*  61.5(11.7)  85.2(10.0)  1.1(2.0)*  43.7(12.8)* 14.8(9.1)
rune 91.5(10.0)* 85.2(9.2)*   84.5(8.1)*   90.4(1.0)     83.1(1.4)*  41.7(13.1)* 56.1(13.1)* 35.5(9.3)  35.9(12.8)* 4.6(0.9)*
mrn  94.2(0.0)*  84.9(10.2)*  81.5(10.3)*  87.7(11.0)    80.1(0.0)*  48.2(11.4)  65.6(9.8)*  28.3(14.5) 38.1(14.9)* 7.5(7.2)*
""")

ABLATION = _table("""
     door-close window-close handle-press coffee-button faucet-open door-open  door-unlock sweep-into drawer-open hammer
1111 97.8(1.0)  93.1(1.0)    93.4(0.0)    86.2(3.7)     89.5(7.9)   70.7(10.4) 85.8(2.1)   36.4(12.3) 77.7(4.9)   29.9(11.5)
0111 96.7(2.0)  94.4(0.0)    91.6(0.0)    90.4(9.7)     82.8(4.0)   84.5(2.4)  85.0(0.0)   38.9(16.4) 68.3(4.0)   22.4(19.7)
1001 94.8(0.0)  93.1(0.0)    91.2(0.0)    82.8(11.7)    90.3(0.0)   67.7(14.0) 78.4(0.0)   20.3(13.2) 44.0(19.6)  14.1(18.1)
1011 95.9(0.0)  94.2(0.0)    92.0(0.0)    84.2(8.7)     89.7(2.4)   58.5(24.5) 83.3(0.0)   29.3(13.2) 58.4(19.6)  12.4(10.7)
0101 97.5(0.0)  93.6(0.0)    91.0(20.0)   76.8(9.7)     85.6(20.0)  82.4(16.0) 81.1(0.0)   31.4(22.3) 53.9(18.9)  15.1(19.4)
1101 96.4(20.0) 94.2(0.0)    92.1(20.0)   90.1(3.2)     84.7(6.0)   78.8(0.0)  88.6(0.0)   4.0(15.6)  76.0(4.0)   38.2(22.6)
0011 97.3(8.0)  94.0(0.0)    93.7(0.0)    89.8(8.0)     80.0(23.3)  66.9(2.0)  83.6(4.0)   15.0(15.7) 71.8(2.0)   33.3(19.7)
1110 96.0(0.0)  89.8(0.0)    88.8(0.0)    79.5(12.4)    87.7(0.0)   68.9(8.0)  76.0(6.3)   11.2(9.7)  68.2(16.0)  27.4(19.6)
0000 95.6(0.0)  74.7(13.5)   90.8(4.0)    75.3(10.7)    83.6(5.0)   61.5(11.7) 85.2(10.0)  1.1(2.0)   43.7(12.8)  14.8(9.1)
""")

CONSERVATIVE = _table("""
             coffee-button faucet-open sweep-into drawer-open
ubp2         86.2(3.7)     89.5(7.9)   36.4(12.3) 77.7(4.9)
conservative 51.0(22.3)    85.9(20.0)  6.4(0.0)   30.8(23.7)
""")

HORIZON = _table("""
           door-close window-close handle-press sweep-into drawer-open
horizon-7  97.8(1.0)  93.1(1.0)    93.4(0.0)    36.4(12.3) 77.7(4.9)
horizon-11 96.3(0.0)  91.6(0.0)    86.1(8.0)    15.0(7.5)  71.5(19.6)
""")
# fmt: on

# The caption of Figure 4 prints one number of its bars.
SELECTION: Table = {"entropy": {"metaworld/door-open": Published(0.1, 20.0)}}

# Last columns as printed: average, then average rank (MAIN) or worst-case regret (ABLATION).
PRINTED: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "table1": {"ubp2": (76.1, 1.20), "mbp": (62.6, 2.60), "rune": (60.8, 3.10), "mrn": (61.6, 3.10)},
    "table2": {
        "1111": (76.1, 13.8),
        "0111": (75.5, 15.8),
        "1001": (67.7, 33.7),
        "1011": (69.8, 26.0),
        "0101": (70.8, 23.8),
        "1101": (74.3, 34.9),
        "0011": (72.5, 23.9),
        "1110": (69.3, 27.7),
        "0000": (62.6, 37.8),
    },
}


def at_horizon(name: str, tasks: tuple[str, ...]) -> Table:
    """UBP2's entries of the main table under the name of the planning horizon that its appendix gives these tasks."""
    return {name: {task: MAIN["ubp2"][task] for task in tasks}}
