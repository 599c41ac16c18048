//! The plot of recovery times: both axes logarithmic, each line named beside its end. It has a
//! background of its own, so that it can be read on light and dark pages.
use std::fmt::Write;

use crate::numbers::float;
use crate::recovery::Line;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
/// The area of the lines: left, right, top, bottom.
const AREA: [f64; 4] = [70.0, 500.0, 62.0, 344.0];
/// Least distance between two names.
const LINE_HEIGHT: f64 = 17.0;
const GRID: &str = "stroke=\"#e6e6e1\"";
/// One for each line, in order; they differ in lightness too.
const COLOURS: [&str; 6] = ["#8a8f98", "#c2410c", "#1d4ed8", "#0f766e", "#65a30d", "#7e22ce"];

/// Maps values to positions.
struct Axis {
    /// The powers of ten at the ends.
    decades: [f64; 2],
    places: [f64; 2],
}

impl Axis {
    fn new(values: impl Iterator<Item = f64> + Clone, places: [f64; 2]) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min).log10().floor();
        let high = values.fold(0.0, f64::max).log10().ceil();
        Axis { decades: [low, high.max(low + 1.0)], places }
    }

    fn place(&self, value: f64) -> f64 {
        let part = (value.log10() - self.decades[0]) / (self.decades[1] - self.decades[0]);
        self.places[0] + part * (self.places[1] - self.places[0])
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        std::iter::successors(Some(self.decades[0]), |decade| Some(decade + 1.0))
            .take_while(|decade| *decade <= self.decades[1])
            .map(|decade| 10f64.powf(decade))
    }
}

/// Draws the times to the first step.
pub(crate) fn svg(lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let [left, right, top, bottom] = AREA;
    let across = Axis::new(points().map(|point| float(point.finished)), [left, right]);
    let up = Axis::new(points().map(|point| point.first), [bottom, top]);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>Recovery time by number of finished steps</title>\n\
         <rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"#fcfcfa\" stroke=\"#d4d4d0\"/>\n",
        WIDTH - 1.0,
        HEIGHT - 1.0
    );
    text(
        &mut svg,
        [20.0, 30.0],
        "fill=\"#1c1c1a\" font-size=\"16\" font-weight=\"600\"",
        "After a SIGKILL: from the start of a process to its first step",
    );
    for tick in across.ticks() {
        let x = across.place(tick);
        rule(&mut svg, [x, top], [x, bottom], GRID);
        text(&mut svg, [x, bottom + 20.0], "fill=\"#55554f\" text-anchor=\"middle\"", &thousands(tick));
    }
    text(&mut svg, [f64::midpoint(left, right), bottom + 42.0], "fill=\"#55554f\" text-anchor=\"middle\"", "finished steps");
    for tick in up.ticks() {
        let y = up.place(tick);
        rule(&mut svg, [left, y], [right, y], GRID);
        text(&mut svg, [left - 10.0, y + 4.5], "fill=\"#55554f\" text-anchor=\"end\"", &duration(tick));
    }
    let mut names: Vec<([f64; 2], &str, &str)> = Vec::new();
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let places: Vec<[f64; 2]> = line.points.iter().map(|point| [across.place(float(point.finished)), up.place(point.first)]).collect();
        let path: Vec<String> = places.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\" stroke-linejoin=\"round\"/>",
            path.join(" ")
        );
        for [x, y] in &places {
            let _ =
                writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\" stroke=\"#fcfcfa\" stroke-width=\"1.5\"/>");
        }
        names.extend(places.last().map(|end| (*end, line.label, *colour)));
    }
    names.sort_by(|one, other| one.0[1].total_cmp(&other.0[1]));
    let mut above = f64::NEG_INFINITY;
    for (end, name, colour) in names {
        above = end[1].max(above + LINE_HEIGHT);
        let dots = format!("stroke=\"{colour}\" stroke-width=\"1.5\" stroke-dasharray=\"1.5 4\"");
        rule(&mut svg, [end[0] + 8.0, end[1]], [right + 12.0, above], &dots);
        text(&mut svg, [right + 18.0, above + 4.5], &format!("fill=\"{colour}\" font-weight=\"600\""), name);
    }
    svg.push_str("</svg>\n");
    svg
}

fn rule(svg: &mut String, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], style: &str) {
    let _ = writeln!(svg, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>");
}

fn text(svg: &mut String, [x, y]: [f64; 2], style: &str, text: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{text}</text>");
}

fn duration(ms: f64) -> String {
    if ms < 1000.0 { format!("{ms} ms") } else { format!("{} s", ms / 1000.0) }
}

fn thousands(value: f64) -> String {
    if value < 1000.0 { format!("{value}") } else { format!("{} 000", value / 1000.0) }
}
