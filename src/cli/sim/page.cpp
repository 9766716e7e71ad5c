#include "cli/sim/page.hpp"

#include <fmt/format.h>

namespace tensorwire::cli {

namespace {

constexpr const char* kStyle = R"(
body { font: 14px/1.45 system-ui, sans-serif; color: #1c2733; margin: 2rem auto; max-width: 1180px; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
.about { color: #5b6b7b; } .finding { background: #f3f6f9; border-left: 4px solid #3572b0; padding: .7rem 1rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .9rem .15rem 0; text-align: right; } td:first-child, th:first-child { text-align: left; }
th { color: #5b6b7b; font-weight: 600; border-bottom: 1px solid #cfd8e0; }
svg { display: block; width: 100%; height: auto; background: #fff; } svg text { font: 11px system-ui, sans-serif; fill: #42515f; paint-order: stroke; stroke: #fff; stroke-width: 3px; }
.numbers { display: flex; flex-wrap: wrap; gap: .6rem 2.2rem; margin: 1rem 0; } .numbers b { display: block; font-size: 1.25rem; }
.axis { stroke: #9aa8b5; } .grid { stroke: #e6ebf0; } button { font: inherit; margin-right: .4rem; } button.on { background: #3572b0; color: #fff; }
)";

// Small pieces first: elements, scales, charts; then the parts of the page.
constexpr const char* kCharts = R"(
const svgNode = (name, attributes, parent, text) => {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.appendChild(node);
  return node;
};
const htmlNode = (name, parent, text, className) => {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  parent.appendChild(node);
  return node;
};
const section = title => { const part = htmlNode('section', document.body); htmlNode('h2', part, title); return part; };
const short = value => {
  for (const [size, unit] of [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) if (value >= size) return +(value / size).toPrecision(3) + unit;
  return String(+value.toPrecision(3));
};
const colours = ['#3572b0', '#d1603d', '#3c9a5f', '#8a63b5', '#b58b1c', '#2aa3a3', '#c2447f', '#6b7785'];
const heat = part => {  // blue, yellow, red
  const stops = [[0, [198, 212, 226]], [0.5, [240, 190, 70]], [1, [200, 30, 30]]];
  const value = Math.min(1, Math.max(0, part));
  const [low, high] = value <= 0.5 ? [stops[0], stops[1]] : [stops[1], stops[2]];
  const share = (value - low[0]) / (high[0] - low[0]);
  return `rgb(${low[1].map((from, n) => Math.round(from + share * (high[1][n] - from))).join(',')})`;
};
// Lines: [{name, points: [[x, y]]}]; options: x, y (names of axes), logX, height.
const chart = (parent, lines, options) => {
  const width = 1150, height = options.height || 190, left = 70, right = 20, top = 24, bottom = 36;
  const svg = svgNode('svg', {viewBox: `0 0 ${width} ${height}`, class: 'chart'}, parent);
  const points = lines.flatMap(line => line.points);
  if (!points.length) return svgNode('text', {x: left, y: height / 2}, svg, 'nothing was measured');
  const scaleX = options.logX ? Math.log10 : value => value;
  let low = Infinity, high = -Infinity, most = 0;
  for (const [x, y] of points) { low = Math.min(low, scaleX(x)); high = Math.max(high, scaleX(x)); most = Math.max(most, y); }
  if (high === low) { low -= 0.5; high += 0.5; }
  most = most || 1;
  const px = x => left + (scaleX(x) - low) / (high - low) * (width - left - right);
  const py = y => height - bottom - y / most * (height - top - bottom);
  for (let n = 0; n <= 4; ++n) {
    const y = most * n / 4, at = low + (high - low) * n / 4, x = options.logX ? 10 ** at : at;
    svgNode('line', {x1: left, x2: width - right, y1: py(y), y2: py(y), class: 'grid'}, svg);
    svgNode('text', {x: left - 8, y: py(y) + 4, 'text-anchor': 'end'}, svg, short(y));
    svgNode('text', {x: px(x), y: height - bottom + 15, 'text-anchor': 'middle'}, svg, short(x));
  }
  svgNode('line', {x1: left, x2: width - right, y1: py(0), y2: py(0), class: 'axis'}, svg);
  svgNode('text', {x: width - right, y: height - 5, 'text-anchor': 'end'}, svg, options.x);
  svgNode('text', {x: left, y: 12}, svg, options.y);
  lines.forEach((line, n) => {
    const path = line.points.map(([x, y]) => `${px(x).toFixed(1)},${py(y).toFixed(1)}`).join(' ');
    svgNode('polyline', {points: path, fill: 'none', stroke: colours[n % colours.length], 'stroke-width': 1.4}, svg);
    if (lines.length > 1) svgNode('text', {x: width - right - 6, y: height - bottom - 8 - 14 * (lines.length - 1 - n),
      'text-anchor': 'end', style: `fill:${colours[n % colours.length]}`}, svg, line.name);
  });
};
const table = (parent, titles, rows) => {
  const node = htmlNode('table', parent), head = htmlNode('tr', node);
  titles.forEach(title => htmlNode('th', head, title));
  for (const row of rows) { const line = htmlNode('tr', node); row.forEach(cell => htmlNode('td', line, String(cell))); }
};
const percent = part => (100 * part).toFixed(1);
// At most so many points, the highest of each stretch: no peak is lost.
const thinned = points => {
  const most = 1500, step = Math.ceil(points.length / most), kept = [];
  for (let n = 0; n < points.length; n += step)
    kept.push(points.slice(n, n + step).reduce((a, b) => b[1] > a[1] ? b : a));
  return kept;
};
)";

constexpr const char* kParts = R"(
const drawTopology = (parent, report) => {
  const names = [...new Set(report.links.flatMap(link => [link.a, link.b]))];
  const level = Object.fromEntries(names.filter(name => name.startsWith('host ')).map(name => [name, 0]));
  for (let next = 1; Object.keys(level).length < names.length && next < 8; ++next)  // switches by their distance from hosts
    for (const link of report.links)
      for (const [from, to] of [[link.a, link.b], [link.b, link.a]])
        if (level[from] === next - 1 && level[to] === undefined) level[to] = next;
  const levels = Math.max(...Object.values(level)), width = 1150, height = 130 + 130 * levels;
  const place = {};
  for (let n = 0; n <= levels; ++n) {
    const row = names.filter(name => level[name] === n);
    row.forEach((name, i) => place[name] = [width * (i + 0.5) / row.length, height - 45 - 130 * n]);
  }
  const what = {busy: ['utilisation', 'of the time it was sending'], paused: ['paused', 'of the time it was told to be silent']};
  const buttons = htmlNode('p', parent);
  const svg = svgNode('svg', {viewBox: `0 0 ${width} ${height}`, id: 'topology'}, parent);
  const draw = shown => {
    svg.replaceChildren();
    for (const link of report.links) {
      const [x1, y1] = place[link.a], [x2, y2] = place[link.b];
      const length = Math.hypot(x2 - x1, y2 - y1), dx = 1.6 * (y2 - y1) / length, dy = -1.6 * (x2 - x1) / length;
      for (const [from, to, sign, values] of [[link.a, link.b, 1, link.from_a], [link.b, link.a, -1, link.from_b]]) {
        const value = values[what[shown][0]];
        const line = svgNode('line', {x1: x1 + sign * dx, y1: y1 + sign * dy, x2: x2 + sign * dx, y2: y2 + sign * dy, class: 'link',
          stroke: heat(value), 'stroke-width': 1 + 2.2 * Math.min(1, value)}, svg);
        svgNode('title', {}, line, `${from} to ${to}: sending ${percent(values.utilisation)} %, paused ${percent(values.paused)} %`);
      }
    }
    for (const name of names) {
      const [x, y] = place[name], host = level[name] === 0, many = names.length > 140;
      svgNode('circle', {cx: x, cy: y, r: host ? (many ? 2 : 4) : 7, fill: host ? '#42515f' : '#1c2733'}, svg);
      if (!host) svgNode('text', {x, y: y - 11, 'text-anchor': 'middle'}, svg, many ? '' : name);
      else if (!many) svgNode('text', {x, y: y + 17, 'text-anchor': 'middle'}, svg, name.slice(5));
    }
    for (let n = 0; n <= 100; n += 5) svgNode('rect', {x: 10 + 2 * n, y: 8, width: 10, height: 9, fill: heat(n / 100)}, svg);
    svgNode('text', {x: 10, y: 30}, svg, `0 to 100 % ${what[shown][1]}; each line is one direction`);
  };
  for (const [shown, [name]] of Object.entries(what)) {
    const button = htmlNode('button', buttons, name);
    button.onclick = () => { buttons.querySelectorAll('button').forEach(other => other.className = ''); button.className = 'on'; draw(shown); };
  }
  buttons.children[report.pause_fraction_max > 0.01 ? 1 : 0].click();
};
const drawSeries = (parent, report) => {
  const {time_us: time, deepest_queue_bytes: queue, paused_ports: paused, payload_bytes: payload, ecn_marked: marked} = report.samples;
  const rate = values => time.slice(1).map((t, n) => [t, (values[n + 1] - values[n]) / Math.max(t - time[n], 1e-9)]);
  const x = 'ms of simulated time', ms = values => values.map(([t, v]) => [t / 1000, v]);
  chart(parent, [{points: thinned(ms(time.map((t, n) => [t, queue[n]])))}], {x, y: 'deepest queue of any switch port, bytes'});
  chart(parent, [{points: thinned(ms(rate(payload).map(([t, v]) => [t, v * 8e-3])))}], {x, y: 'payload that arrives at hosts, Gb/s'});
  chart(parent, [{points: thinned(ms(time.map((t, n) => [t, paused[n]])))}], {x, y: 'ports that are paused'});
  chart(parent, [{points: thinned(ms(rate(marked).map(([t, v]) => [t, v * 1e3])))}], {x, y: 'ECN marks per ms', height: 130});
};
const cdf = values => values.map((value, n) => [value, (n + 1) / values.length]);
const drawLatencies = (parent, report) => {
  const groups = report.groups.filter(group => group.latencies_us.length);
  const few = groups.length <= 8;
  const lines = few ? groups.map(group => ({name: `hosts ${group.hosts.slice(0, 8).join(' ')}`, points: cdf(group.latencies_us)}))
                    : [{points: thinned(cdf(groups.flatMap(group => group.latencies_us).sort((a, b) => a - b)))}];
  chart(parent, lines, {x: 'us of an all-reduce', y: 'part that took no longer', logX: true, height: 240});
};
const drawReport = report => {
  htmlNode('h1', document.body, report.scenario);
  htmlNode('p', document.body, `${report.about} ${short(report.simulated_us / 1000)} ms simulated, seed ${report.seed}`
    + (report.interrupted ? '; INTERRUPTED: of the part that ran' : ''), 'about');
  htmlNode('p', document.body, report.finding, 'finding');
  const numbers = htmlNode('div', document.body, undefined, 'numbers');
  const number = (name, value) => { const box = htmlNode('div', numbers, name); box.prepend(htmlNode('b', box, value)); };
  if (report.groups.length) number('ms a token', report.ms_per_token.toFixed(2));
  if (report.groups.length) number('us of an all-reduce, p50 / p99 / max',
    ['p50', 'p99', 'max'].map(part => short(report.allreduce_us[part])).join(' / '));
  number('Gb/s of payload', short(report.goodput_gbps));
  number('% of the time, most paused port', percent(report.pause_fraction_max));
  for (const key of ['ecn_marked', 'cnps', 'retransmitted', 'dropped', 'lost']) number(key.replace('_', ' '), short(report[key]));
  drawTopology(section('Links'), report);
  drawSeries(section('Over time'), report);
  if (report.groups.length) drawLatencies(section('Latency of all-reduces'), report);
  table(section('Ports, the most paused first'), ['port', 'to', 'paused %', 'busy %', 'deepest queue', 'marked', 'dropped'],
    report.ports.slice(0, 24).map(port => [port.port, port.to, percent(port.pause_fraction), percent(port.utilisation),
      short(port.longest_queue_bytes), port.ecn_marked, port.dropped]));
};
const drawSweep = sweep => {
  htmlNode('h1', document.body, `${sweep.runs[0].scenario}: ${sweep.sweep}`);
  const tokens = sweep.runs.some(run => run.groups.length);
  const measure = run => tokens ? run.ms_per_token : run.bulk_gbps;
  const bars = section(tokens ? 'ms a token' : 'Gb/s of bulk traffic'), most = Math.max(...sweep.runs.map(measure)) || 1;
  const svg = svgNode('svg', {viewBox: `0 0 1150 ${30 * sweep.runs.length + 10}`, class: 'chart'}, bars);
  sweep.runs.forEach((run, n) => {
    svgNode('text', {x: 140, y: 30 * n + 22, 'text-anchor': 'end'}, svg, run.value);
    svgNode('rect', {x: 150, y: 30 * n + 7, width: 880 * measure(run) / most, height: 20, fill: colours[n % colours.length]}, svg);
    svgNode('text', {x: 156 + 880 * measure(run) / most, y: 30 * n + 22}, svg, measure(run).toFixed(2));
  });
  if (tokens) chart(section('Latency of all-reduces'), sweep.runs.map(run => ({name: run.value, points: cdf(
    run.groups.flatMap(group => group.latencies_us).sort((a, b) => a - b))})), {x: 'us', y: 'part that took no longer', logX: true, height: 260});
  table(section('In numbers'), [sweep.sweep, 'ms/token', 'p50 us', 'p99 us', 'max us', 'Gb/s', 'paused %', 'marked', 'dropped'],
    sweep.runs.map(run => [run.value, run.ms_per_token.toFixed(2), ...['p50', 'p99', 'max'].map(part => short(run.allreduce_us[part])),
      short(run.goodput_gbps), percent(run.pause_fraction_max), run.ecn_marked, run.dropped]));
};
const data = JSON.parse(document.getElementById('report').textContent);
data.runs ? drawSweep(data) : drawReport(data);
)";

/// Text for HTML's elements and titles.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string sim_page(const std::string& title, const std::string& json) {
  std::string data = json;
  for (std::size_t at = 0; (at = data.find("</", at)) != std::string::npos; at += 2) data.replace(at, 2, "<\\/");
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\n<link rel=\"icon\" "
      "href=\"data:,\">\n<style>{}</style></head>\n<body>\n<script type=\"application/json\" "
      "id=\"report\">{}</script>\n"
      "<script>{}{}</script>\n</body></html>\n",
      escaped(title), kStyle, data, kCharts, kParts);
}

}  // namespace tensorwire::cli
