// Markdown that is made to break a page. Each `q` is text that has to be seen.

const lines = (n, line) => Array.from({ length: n }, (_, at) => line(at)).join("\n");

export const shapes = {
  "8 000 quotes": `${">".repeat(8000)} q`,
  "600 nested lists": lines(600, (at) => `${" ".repeat(2 * at)}- q`),
  "2 000 nested ordered lists": `${"1. ".repeat(2000)}q`,
  "quotes and lists in turn": `${"> - ".repeat(2000)}q`,
  "3 000 columns": `|${"q|".repeat(3000)}\n|${"-|".repeat(3000)}\n|${"q|".repeat(3000)}`,
  "100 000 rows": `|q|b|\n|-|-|\n${"|q|2|\n".repeat(100_000)}`,
  "one line of 10 MB": "q word ".repeat(1_500_000),
  "one word of 10 MB": "q".repeat(10_000_000),
  "100 000 backticks": `${"`".repeat(100_000)}q`,
  "backticks of every length": lines(450, (at) => `${"`".repeat(at)} q`),
  "emphasis in emphasis": `${"*_".repeat(20_000)}q`,
  "100 000 closed emphases": "q*".repeat(100_000),
  "strong and emphasis that overlap": "*q**q".repeat(20_000),
  "50 000 links": "[q](http://x.y/) ".repeat(50_000),
  "links in links": `${"[q ".repeat(20_000)}${"](b)".repeat(20_000)}`,
  "100 000 brackets": `${"[".repeat(100_000)}q`,
  "100 000 pictures that are not closed": `${"![".repeat(100_000)}q`,
  "50 000 levels of HTML": `${"<div>".repeat(50_000)}q`,
  "20 000 comments that are not closed": `${"<!-- ".repeat(20_000)}q`,
  "50 000 items": "- q\n".repeat(50_000),
  "50 000 headings": "# q\n\n".repeat(50_000),
  "50 000 rules": `${"---\n".repeat(50_000)}q`,
  "20 000 code blocks": "```\nq\n```\n".repeat(20_000),
  "code that is not closed": `\`\`\`\n${"q();\n".repeat(50_000)}`,
  "100 000 escapes": `${"\\*".repeat(100_000)}q`,
  "a link that is not closed": `[q](${"(".repeat(100_000)}`,
};
