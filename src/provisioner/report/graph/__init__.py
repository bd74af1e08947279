"""What of a lab is connected with what, drawn from its file alone: as a value, as text, as a picture, for other tools.

``topology`` (the value), ``words`` (text), ``layout`` (where everything stands), ``routes`` (ways of the lines),
``picture`` (SVG), ``dot`` (Graphviz).
"""

from provisioner.report.graph.dot import graph_dot
from provisioner.report.graph.picture import graph_svg
from provisioner.report.graph.topology import Graph, topology
from provisioner.report.graph.words import graph_text

__all__ = ["Graph", "graph_dot", "graph_svg", "graph_text", "topology"]
