"""How the page looks: light and dark, on paper and on a phone."""

from __future__ import annotations

_HUES = (
    "#36c", "#e08a00", "#2a9d6f", "#b04fc4", "#c9b400", "#00a3c4", "#d6336c", "#7a8b2f", "#7950f2", "#a0643c", "#5f9ea0",
    "#ff7f6e",
)  # fmt: skip

_BASE = """
:root{--paper:#fff;--panel:#f6f7f9;--ink:#1b1f24;--muted:#5b6570;--rule:#d9dde2;--track:#e9ecf0;
--cdp:#1668b8;--all:#2b8a5f;--labeled:#9aa4af;--wrong:#d32f2f;--odd:#e8830c;--plus:22,104,184;--minus:214,110,16}
@media screen and (prefers-color-scheme:dark){:root{--paper:#14171b;--panel:#1c2127;--ink:#e6e9ed;--muted:#9aa5b1;--rule:#343b44;
--track:#2a3038;--cdp:#5aa9f0;--all:#4fc08d;--labeled:#77828e;--wrong:#ff6b6b;--odd:#ffa94d;--plus:90,169,240;
--minus:255,169,77}}
*{box-sizing:border-box}html{scroll-behavior:smooth;scroll-padding-top:3.5rem;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"DejaVu Sans",sans-serif;overflow-wrap:break-word}
header,main,footer{max-width:1080px;margin:0 auto;padding:0 20px}header{padding-top:28px}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .3rem}h2{font-size:1.45rem;margin:0 0 .5rem}
h3{font-size:1.02rem;margin:0 0 .5rem}
nav{position:sticky;top:0;z-index:2;background:var(--paper);border-bottom:1px solid var(--rule)}
nav div{max-width:1080px;margin:0 auto;padding:8px 20px;display:flex;flex-wrap:wrap;gap:2px 18px}
a{color:var(--cdp)}nav a{text-decoration:none;font-size:.92rem}nav a:hover,nav a:focus{text-decoration:underline}
section{padding:30px 0 14px;border-bottom:1px solid var(--rule)}section:last-of-type{border:0}
p{margin:0 0 .9rem;max-width:46rem}.lead{font-size:1.1rem}
.notes{margin:0 0 1rem;padding:10px 14px 10px 2rem;max-width:48rem;background:var(--panel);border-left:4px solid var(--odd);
border-radius:6px}
main>.note{padding-top:24px;margin:0}
.note,figcaption,caption,small{color:var(--muted);font-size:.88rem}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,300px),1fr));gap:16px;margin:0 0 18px}
figure{margin:0;padding:16px;background:var(--panel);border-radius:10px;min-width:0}
figure.wide{margin-bottom:18px}figcaption{margin-top:.6rem;max-width:46rem}
svg{display:block;width:100%;height:auto;max-width:420px}.wide svg{max-width:100%}
svg.natural{width:auto;max-width:none}.wide p+svg,.wide .scroll+svg{max-width:360px}
svg text{font:14px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--ink);white-space:pre}
svg text.small,svg .small{font-size:11.5px;fill:var(--muted)}svg .strong{font-weight:650}
svg .muted{fill:var(--muted);font-size:12px}svg text.onheat{fill:#fff}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,150px),1fr));gap:12px;margin:0 0 18px}
.tile{background:var(--panel);border-radius:10px;padding:12px 14px;display:flex;flex-direction:column;min-width:0}
.tile b{font-size:1.55rem;line-height:1.2;font-weight:650}.tile span{font-size:.9rem}
.scroll{overflow-x:auto;margin:0 0 18px;max-width:100%}figure .scroll{margin:0 0 8px}
table{border-collapse:collapse;font-size:.92rem;font-variant-numeric:tabular-nums}
caption{text-align:left;padding-bottom:.4rem;white-space:nowrap}
th,td{padding:5px 16px 5px 0;text-align:left;border-bottom:1px solid var(--rule);white-space:nowrap;font-weight:400}
thead th{color:var(--muted);font-size:.85rem}.n{text-align:right}
details{margin:0 0 18px}summary{cursor:pointer;color:var(--cdp);margin-bottom:.5rem}
pre{background:var(--panel);padding:14px;border-radius:10px;overflow-x:auto;font-size:.85rem;max-width:100%}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:.6rem 0 0;font-size:.88rem;max-width:none}
.legend span{display:inline-flex;align-items:center;gap:7px}section>.legend{margin:0 0 1rem}
.swatch{flex:none;width:12px;height:12px;border-radius:3px;background:currentColor}
.swatch.box{background:var(--track);width:18px;height:18px;border-radius:4px}
.swatch.dot{border-radius:50%;background:#36c}.swatch.dot.hollow{background:var(--paper);border:2px solid var(--wrong)}
.swatch.edge{height:0;width:22px;border-radius:0;background:none;border-top:2px solid var(--ink)}
.swatch.edge.wrong{border-top:3px solid var(--wrong)}.swatch.edge.dotted{border-top:2px dotted var(--muted)}
.track{fill:var(--track)}.whisker{stroke:var(--ink);stroke-width:1.5}.rule{stroke:var(--rule)}
.mark{stroke:var(--ink);stroke-dasharray:3 3}.curve{stroke-width:2.2}
.gallery{margin:0 0 26px}.gallery .note{margin-bottom:.5rem}
.group{display:flex;gap:6px 16px;align-items:center;padding:8px 0;border-top:1px solid var(--rule);break-inside:avoid}
.who{flex:none;width:185px;font-size:.85rem;min-width:0}.who b{display:block}
.who span{color:var(--muted);font-size:.8rem}
.thumbs{display:flex;flex-wrap:wrap;gap:6px 16px;min-width:0}
.run{display:flex;flex-wrap:wrap;gap:6px;align-items:center}
.thumbs .box{width:46px;height:46px;border-radius:5px;object-fit:cover;background:var(--track);display:inline-grid;
place-items:center;color:var(--muted)}
.missed{outline:2.5px solid var(--wrong);outline-offset:-1px}
.thumbs .path{background:var(--track);border-radius:5px;padding:3px 8px;font-size:.82rem;overflow-wrap:anywhere}
.path small{margin-left:.5em}.other{outline:2.5px dashed var(--odd);outline-offset:-1px}
.more{color:var(--muted);font-size:.82rem;white-space:nowrap;padding-left:2px}
line.edge{stroke:var(--ink);stroke-width:1.1}
line.e0{stroke-opacity:.55}line.e1{stroke-opacity:.32}line.e2{stroke-opacity:.16}
line.edge.wrong{stroke:var(--wrong);stroke-width:2.2}
line.edge.dotted{stroke:var(--muted);stroke-dasharray:2 3;stroke-opacity:.7}
.node{stroke:var(--panel);stroke-width:1}.node.discarded{fill:var(--panel);stroke:var(--wrong);stroke-width:2.2}
footer{color:var(--muted);font-size:.85rem;padding:20px 20px 40px}
@media (max-width:640px){body{font-size:15px}header,main,footer{padding-left:16px;padding-right:16px}
nav{position:static}nav div{padding:8px 16px}figure{padding:12px}h1{font-size:1.5rem}
.group{flex-direction:column;align-items:flex-start}.who{width:auto}.who b{display:inline;margin-right:.5em}
.thumbs .box{width:44px;height:44px}}
@media print{nav{display:none}figure,table,.tile{break-inside:avoid}h2,h3{break-after:avoid}body{font-size:11pt}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""


def style_sheet() -> str:
    """The whole style; colors of charts are classes, so that dark mode and print can change them."""
    colors = {
        "m-cdp": "cdp",
        "m-all": "all",
        "m-labeled": "labeled",
        "cdp": "cdp",
        "wrong": "wrong",
        "odd": "odd",
    }
    rules = []
    for kind, color in colors.items():
        rules.append(f"rect.{kind}{{fill:var(--{color})}}.swatch.{kind}{{color:var(--{color})}}")
        rules.append(f".curve.{kind}{{stroke:var(--{color})}}")
    for level in range(11):
        rules.append(f".p{level}{{fill:rgba(var(--plus),{level / 10:g})}}")
        rules.append(f".n{level}{{fill:rgba(var(--minus),{level / 10:g})}}")
    rules += [f".c{number}{{fill:{hue}}}" for number, hue in enumerate(_HUES)]
    return _BASE + "\n".join(rules) + "\n"
