"""The look of a lab's page: one style sheet for light and dark, phones and paper; nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re

from provisioner.measuring.engine_picture import MORE as BENCH
from provisioner.measuring.probe_picture import MORE as PROBE
from provisioner.report.svg import STYLE as PICTURES

DARK = "@media (prefers-color-scheme: dark)"
ON_SCREEN = "@media screen and (prefers-color-scheme: dark)"
"""Paper is white, whatever the screen is."""
IN_PICTURE = re.compile(r"<style>.*?</style>", re.DOTALL)

OWN = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #ffffff; --soft: #f6f8fa; --line: #d0d7de; --dim: #59636e;
  --good: #1a7f37; --bad: #cf222e; --mind: #8a5a00; --link: #0550ae; --free: #eaeef2;
  --e0: #0969da; --e1: #bc4c00; --e2: #1a7f37; --e3: #8250df; --e4: #bf3989; --e5: #1b7c83; --on: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #f0f6fc; --paper: #0d1117; --soft: #151b23; --line: #3d444d;
  --dim: #9198a1; --good: #3fb950; --bad: #f85149; --mind: #d29922; --link: #79c0ff; --free: #2a313c;
  --e0: #4493f8; --e1: #f0883e; --e2: #3fb950; --e3: #ab7df8; --e4: #db61a2; --e5: #39c5cf; --on: #0d1117; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 1rem; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1rem 4rem; color: var(--ink); background: var(--paper);
  font: 15px/1.55 ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
a { color: var(--link); }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.8rem 0 .8rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h4 { font-size: .95rem; margin: 1.1rem 0 .4rem; overflow-wrap: anywhere; }
p { margin: .4rem 0; }
p, li, dd, td, figcaption, summary { overflow-wrap: anywhere; }
header p { margin: .1rem 0; }
nav ul { display: flex; flex-wrap: wrap; gap: .3rem 1rem; list-style: none; padding: 0; margin: 1rem 0 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .7rem; padding: 0;
  margin: 1.2rem 0 0; list-style: none; }
.tiles li { border: 1px solid var(--line); border-radius: 10px; padding: .6rem .9rem; background: var(--soft); }
.tiles .number { display: block; font-size: 1.45rem; font-weight: 600; line-height: 1.3; }
.panel { border: 1px solid var(--line); border-radius: 10px; padding: .9rem 1.1rem; margin: .9rem 0; }
.notice { border-left: 4px solid var(--line); padding: .1rem 0 .1rem .8rem; margin: .7rem 0; }
.notice.bad { border-color: var(--bad); } .notice.mind { border-color: var(--mind); }
.notice.good { border-color: var(--good); } .notice p { margin: .15rem 0; }
time { white-space: nowrap; }
.state { font-weight: 600; } .state.dim { font-weight: 400; }
.good.state { color: var(--good); } .bad.state { color: var(--bad); } .mind.state { color: var(--mind); }
.dim { color: var(--dim); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.1rem; margin: .4rem 0; }
dt { color: var(--dim); } dd { margin: 0; }
table { border-collapse: collapse; width: 100%; min-width: 34rem; font-size: .93em; }
th, td { text-align: left; vertical-align: top; padding: .35rem .7rem .35rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--dim); white-space: nowrap; }
td { min-width: 4.5rem; } tr:last-child td { border-bottom: 0; }
td.number, th.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.wide { overflow-x: auto; margin: .6rem 0; border-radius: 8px; }
.wide:focus-visible, summary:focus-visible, a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
pre { margin: .4rem 0; padding: .7rem .9rem; border-radius: 8px; background: var(--soft); white-space: pre-wrap;
  overflow-wrap: anywhere; font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace; }
.wide pre { white-space: pre; overflow-wrap: normal; width: max-content; min-width: 100%; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--link); }
td details { margin: 0; } td ul { margin: .2rem 0; padding-left: 1.1rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: 1rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(21rem, 100%), 1fr)); gap: 1rem 1.4rem; }
figure { margin: .6rem 0; } figcaption { margin-top: .3rem; font-size: .93em; }
figure img { display: block; max-width: 100%; height: auto; border: 1px solid var(--line); border-radius: 8px; }
.wide > svg { display: block; max-width: 100%; min-width: 46rem; height: auto; }
.wide.large > svg { max-width: none; }
.wide.fits > svg { min-width: 34rem; width: 100%; max-width: 60rem; }
.bars { display: block; width: 100%; margin: .15rem 0 .7rem; }
.bars .free { fill: var(--free); } .bars .rest { fill: var(--soft); stroke: var(--line); stroke-dasharray: 4 3; }
  .bars .reserved { fill: var(--dim); } .bars .over { fill: var(--bad); }
.bars text { font-size: 12px; font-weight: 600; fill: var(--on); }
.e0 { fill: var(--e0); } .e1 { fill: var(--e1); } .e2 { fill: var(--e2); } .e3 { fill: var(--e3); }
.e4 { fill: var(--e4); } .e5 { fill: var(--e5); }
.key { width: .9em; height: .9em; vertical-align: -.08em; margin-right: .45em; }
.key.free { fill: var(--free); stroke: var(--dim); } .key.reserved { fill: var(--dim); }
.key.over { fill: var(--bad); }
.plot { display: block; width: 100%; height: auto; }
.plot .grid { stroke: var(--line); } .plot .way { fill: none; stroke: var(--e0); stroke-width: 2; }
.plot .between { stroke: var(--e0); stroke-width: 2; opacity: .55; } .plot .point { fill: var(--e0); }
.plot .other { fill: var(--paper); stroke: var(--e0); stroke-width: 2; }
.plot text { font-size: 12px; fill: var(--dim); }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .8rem; }
@media (max-width: 34rem) { body { padding: 1rem .8rem 3rem; } .panel { padding: .7rem .8rem; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .45rem; } h1 { font-size: 1.4rem; }
  .tiles { grid-template-columns: 1fr 1fr; } }
@media print { body { max-width: none; padding: 0; font-size: 10.5pt; } nav { display: none; }
  .wide { overflow: visible; } .wide > svg, .wide.fits > svg, .wide.large > svg { max-width: 100%; min-width: 0; }
  .wide pre { white-space: pre-wrap; width: auto; } table { min-width: 0; } .key,
  .bars { print-color-adjust: exact; } a { color: inherit; }
  .panel, figure, tr, .notice, .tiles li { break-inside: avoid; } h2, h3, h4 { break-after: avoid; }
  details::details-content { content-visibility: visible; display: block; block-size: auto; } }
"""
SHEET = (PICTURES + PROBE + BENCH + OWN).replace(DARK, ON_SCREEN)
"""The rules of the pictures, of which each has its own where it is a file, and those of the page."""


def sheet_digest() -> str:
    """The sheet as a rule about what may be used names it: nothing that is smuggled in can bring a style."""
    return base64.b64encode(hashlib.sha256(SHEET.encode()).digest()).decode("ascii")


def without_style(picture: str) -> str:
    """A picture whose rules are in the page's sheet."""
    return IN_PICTURE.sub("", picture)
