'use strict';
const canvas = $('canvas'), context = canvas.getContext('2d');
const LABEL = 20, BAND = 16, CURVE = 48, LANE = 14, GAP = 10, AXIS = 22;
// The states of a scheduler that are shown, from below. The rest is sleep.
const STATES = [['emulator', '--accent', 0.55], ['gc', '--heat', 0.55], ['port', '--soft', 0.6], ['check_io', '--soft', 0.3], ['aux', '--soft', 0.45], ['other', '--soft', 0.45]];
// Numbers of processes: areas above each other, and a line with a scale of its own.
const AREAS = [['running', '--accent', 0.55], ['runnable', '--heat', 0.55]], LINE = ['waiting', '--soft', 1];
const CATEGORIES = {wait: ['--heat', 1], call: ['--accent', 0.8], slice: ['--accent', 0.45], busy: ['--heat', 1], adaptation: ['--accent', 1], read: ['--soft', 1],
  memory: ['--vm', 1], table: ['--text', 1], monitor: ['--text', 1]};
let tracks = [], waits = [], whole = 1, from = 0, to = 1, chosen = null, marked = null, planned = false;

function time(micros) {
  if (micros < 1000) return micros.toFixed(micros < 10 ? 2 : 1) + ' µs';
  return micros < 1e6 ? (micros / 1000).toFixed(2) + ' ms' : (micros / 1e6).toFixed(3) + ' s';
}
// The first index from which a condition holds.
function first(list, holds) {
  let low = 0, high = list.length;
  while (low < high) { const middle = low + high >> 1; if (holds(list[middle])) high = middle; else low = middle + 1; }
  return low;
}
function load(trace) {
  const about = trace.otherData || {}, byTid = new Map(), nodes = new Map((about.nodes || []).map(one => [one.number, one]));
  const empty = (name, pid, order) => ({name, pid, order, lanes: [], points: [], states: [], counts: [], open: []});
  const track = ({pid, tid}) => {
    const key = pid + ' ' + tid;
    if (!byTid.has(key)) byTid.set(key, empty('thread ' + tid, pid, tid));
    return byTid.get(key);
  };
  const events = trace.traceEvents.filter(one => one.ph !== 'M');
  events.sort((a, b) => a.ts - b.ts || (b.dur || 0) - (a.dur || 0));
  for (const one of trace.traceEvents) {
    if (one.ph === 'M' && one.name === 'thread_name') track(one).name = one.args.name;
    if (one.ph === 'M' && one.name === 'thread_sort_index') track(one).order = one.args.sort_index;
  }
  // What has the same name in several nodes is told apart.
  const where = (name, pid) => name !== undefined && nodes.has(pid) ? name + ' on ' + nodes.get(pid).node : name;
  for (const one of events) {
    const at = track(one);
    one.end = one.ts + (one.dur || 0);
    one.table = where(one.args.table, one.pid);
    one.process = where(one.args.process, one.pid);
    if (one.ph === 'C' && one.cat === 'processes') at.counts.push(one);
    else if (one.ph === 'C') at.states.push(one);
    else if (one.ph === 'X') {
      while (at.open.length && at.open[at.open.length - 1].end <= one.ts) at.open.pop();
      one.inside = at.open.some(other => other.cat === 'call');
      (at.lanes[at.open.length] = at.lanes[at.open.length] || []).push(one);
      at.open.push(one);
    } else at.points.push(one);
  }
  const sign = micros => (micros < 0 ? '−' : '+') + time(Math.abs(micros));
  const heads = [...nodes.values()].map(one => Object.assign(empty(one.node + (one.error ? ', clock ' + sign(one.offset) + ' ± ' + time(one.error) : ''), one.number, -1),
    {head: true}));
  tracks = [...heads, ...byTid.values()].sort((a, b) => a.pid - b.pid || a.order - b.order);
  for (const at of tracks.filter(one => one.counts.length)) {
    at.most = Math.max(1, ...at.counts.map(one => one.args.running + one.args.runnable));
    at.waiting = Math.max(1, ...at.counts.map(one => one.args.waiting));
    at.name += ': up to ' + at.most.toLocaleString('en') + ' run or could, up to ' + at.waiting.toLocaleString('en') + ' wait';
    at.counts.forEach((one, i) => { one.end = i + 1 < at.counts.length ? at.counts[i + 1].ts : one.ts; });
  }
  let y = AXIS;
  for (const at of tracks) {
    at.y = y;
    at.height = LABEL + (at.states.length ? BAND : 0) + (at.counts.length ? CURVE : 0) + at.lanes.length * LANE + (at.points.length ? LANE : 0) + GAP;
    y += at.height;
  }
  canvas.style.height = y + 'px';
  whole = about.microseconds || events.reduce((most, one) => Math.max(most, one.end), 1);
  waits = events.filter(one => one.cat === 'wait');
  chosen = marked = null;
  $('node').textContent = about.node || '?';
  $('about').textContent = 'OTP ' + about.otp + ', ' + time(whole) + ', ' + events.filter(one => one.ph !== 'C').length.toLocaleString('en') + ' events'
    + (about.lost ? ', ' + about.lost.toLocaleString('en') + ' older ones lost' : '')
    + ((about.left_out || []).length ? ', without ' + about.left_out.join(', ') : '')
    + ((about.down || []).length ? ', without the nodes ' + about.down.join(', ') : '');
  canvas.setAttribute('aria-label', 'Timeline of ' + tracks.length + ' threads with ' + waits.length + ' waits. The tables below sum them up.');
  $('detail').hidden = false;
  sumUp(events);
  show(0, whole);
}
function sumUp(events) {
  const tables = new Map(), processes = new Map(), calls = new Map();
  const add = (map, key) => { if (!map.has(key)) map.set(key, {waits: 0, all: 0, longest: 0, up: 0, again: 0, slow: 0}); return map.get(key); };
  for (const one of events) {
    if (one.cat === 'busy') for (const [map, key] of [[tables, one.table], [processes, one.process]]) add(map, key).again += 1;
    if ((one.cat === 'call' || one.cat === 'slice') && one.process && !one.inside) add(processes, one.process).slow += one.dur;
    if (one.cat !== 'wait') continue;
    const sums = [add(tables, one.table)];
    if (one.process) sums.push(add(processes, one.process));
    if (one.args.meanwhile) sums.push(add(calls, JSON.stringify([one.args.meanwhile, one.table])));
    for (const sum of sums) { sum.waits += 1; sum.all += one.dur; sum.longest = Math.max(sum.longest, one.dur); sum.up += one.args.got ? 0 : 1; }
  }
  const rows = map => [...map].sort((a, b) => b[1].all - a[1].all || b[1].slow - a[1].slow).slice(0, 100);
  const cell = (title, text) => make('td', make('span', text), {'data-title': title});
  const ranking = (map, key, title, more) => rows(map).map(([value, sum]) => {
    const button = make('button', value, {type: 'button', 'aria-pressed': false, title});
    const line = make('tr', [make('td', button), cell('Waits', sum.waits.toLocaleString('en')), cell('In all', time(sum.all)), cell('Longest', time(sum.longest)),
      cell('Given up', sum.up.toLocaleString('en')), cell('Called again', sum.again.toLocaleString('en')), ...more(sum)]);
    line.addEventListener('click', () => {
      marked = marked !== null && marked.key === key && marked.value === value ? null : {key, value};
      for (const other of [...$('waits').children, ...$('processes').children]) {
        const is = marked !== null && other === line;
        other.setAttribute('aria-current', is);
        other.querySelector('button').setAttribute('aria-pressed', is);
      }
      plan();
    });
    return line;
  });
  $('waits').replaceChildren(...ranking(tables, 'table', 'Show only this table', () => []));
  $('processes').replaceChildren(...ranking(processes, 'process', 'Show only this process', sum => [cell('Slow calls', time(sum.slow))]));
  $('none').hidden = tables.size > 0;
  $('ranking').hidden = processes.size === 0;
  $('others').hidden = calls.size === 0;
  $('meanwhile').replaceChildren(...rows(calls).map(([key, sum]) => {
    const [call, table] = JSON.parse(key);
    return make('tr', [make('td', call), cell('Table', table), cell('Waits', sum.waits.toLocaleString('en')), cell('In all', time(sum.all))]);
  }));
}
// Whether an event is not of the table or process that was chosen.
function fades(one) { return marked !== null && one[marked.key] !== marked.value; }
function show(begin, end) {
  const wide = Math.min(Math.max(end - begin, 0.05), whole);
  from = Math.min(Math.max(begin, 0), whole - wide);
  to = from + wide;
  plan();
}
function zoom(factor, at) {
  const centre = chosen && chosen.ts >= from && chosen.ts <= to ? chosen.ts : (from + to) / 2, middle = at === undefined ? centre : at;
  show(middle - (middle - from) * factor, middle + (to - middle) * factor);
}
function pan(share) { show(from + share * (to - from), to + share * (to - from)); }
function plan() { if (!planned) { planned = true; requestAnimationFrame(draw); } }
function draw() {
  planned = false;
  const width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) { canvas.width = width * ratio; canvas.height = height * ratio; }
  const paint = ([name, alpha]) => { context.fillStyle = style.getPropertyValue(name); context.globalAlpha = alpha; };
  const x = at => (at - from) / (to - from) * width;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = '12px system-ui, sans-serif';
  context.textBaseline = 'top';
  // Ticks of 1, 2 or 5 times a power of ten.
  const least = (to - from) / (width / 110), power = 10 ** Math.floor(Math.log10(least)), step = [1, 2, 5, 10].find(one => one * power >= least) * power;
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
    paint(['--line', 1]);
    context.fillRect(x(tick), 0, 1, height);
    paint(['--soft', 1]);
    context.fillText(tick ? time(tick).replace(/[.]?0+ /, ' ') : '0', x(tick) + 4, 2);
  }
  for (const track of tracks) {
    let y = track.y;
    paint(['--line', 1]);
    context.fillRect(0, y, width, 1);
    paint(['--text', 1]);
    if (track.head) context.font = 'bold 13px system-ui, sans-serif';
    context.fillText(track.name, 2, y + 4);
    context.font = '12px system-ui, sans-serif';
    y += LABEL;
    if (track.counts.length) { curves(track, x, y, paint); y += CURVE; }
    if (track.states.length) {
      for (let i = first(track.states, one => one.end >= from); i < track.states.length && track.states[i].ts <= to; i += 1) {
        const one = track.states[i];
        let bottom = y + BAND - 2;
        for (const [state, colour, alpha] of STATES) {
          const part = (one.args[state] || 0) / 100 * (BAND - 2);
          paint([colour, alpha]);
          context.fillRect(x(one.ts), bottom - part, x(one.end) - x(one.ts), part);
          bottom -= part;
        }
      }
      y += BAND;
    }
    for (const lane of track.lanes) {
      // What is narrower than a pixel is drawn once for each pixel.
      let last = {};
      for (let i = first(lane, one => one.end >= from); i < lane.length && lane[i].ts <= to; i += 1) {
        const one = lane[i], left = Math.max(x(one.ts), -1), right = Math.min(x(one.end), width + 1), wide = Math.max(right - left, 1);
        if (wide <= 1 && last[one.cat] === Math.floor(left) && one !== chosen) continue;
        last[one.cat] = Math.floor(left);
        const [colour, alpha] = CATEGORIES[one.cat] || ['--soft', 1];
        paint([colour, fades(one) ? 0.12 : alpha]);
        context.fillRect(left, y, wide, LANE - 2);
        if (wide > 60) {
          paint(['--card', 1]);
          context.save();
          context.beginPath();
          context.rect(left, y, wide, LANE);
          context.clip();
          context.fillText(one.name, left + 4, y);
          context.restore();
        }
        if (one === chosen) outline(style, left, y, wide);
      }
      y += LANE;
    }
    let last = {};
    for (let i = first(track.points, one => one.ts >= from); i < track.points.length && track.points[i].ts <= to; i += 1) {
      const one = track.points[i], left = Math.floor(x(one.ts));
      if (last[one.cat] === left && one !== chosen) continue;
      last[one.cat] = left;
      const [colour, alpha] = CATEGORIES[one.cat] || ['--soft', 1];
      paint([colour, fades(one) ? 0.12 : alpha]);
      context.fillRect(left - 1, y, 2, LANE - 2);
      if (one === chosen) outline(style, left - 2, y, 4);
    }
  }
  context.globalAlpha = 1;
}
function curves(track, x, y, paint) {
  const bottom = y + CURVE - 4, part = (value, most) => value / most * (CURVE - 4);
  const begin = Math.max(0, first(track.counts, one => one.end >= from) - 1);
  const shown = track.counts.slice(begin, first(track.counts, one => one.ts > to) + 1);
  for (const one of shown) {
    let top = bottom;
    for (const [name, colour, alpha] of AREAS) {
      const high = part(one.args[name], track.most);
      paint([colour, alpha]);
      context.fillRect(x(one.ts), top - high, Math.max(x(one.end) - x(one.ts), 1), high);
      top -= high;
    }
  }
  const [name, colour, alpha] = LINE;
  paint([colour, alpha]);
  context.strokeStyle = context.fillStyle;
  context.lineWidth = 1;
  context.beginPath();
  for (const one of shown) { context.lineTo(x(one.ts), bottom - part(one.args[name], track.waiting)); context.lineTo(x(one.end), bottom - part(one.args[name], track.waiting)); }
  context.stroke();
}
function outline(style, left, y, wide) {
  context.globalAlpha = 1;
  context.strokeStyle = style.getPropertyValue('--text');
  context.lineWidth = 2;
  context.strokeRect(left - 1, y - 1, wide + 2, LANE);
}
// What is at a point of the canvas.
function find(px, py) {
  const width = canvas.clientWidth, at = from + px / width * (to - from), near = 4 / width * (to - from);
  const track = tracks.find(one => py >= one.y && py < one.y + one.height);
  if (!track) return null;
  let y = track.y + LABEL;
  const hit = list => {
    const i = first(list, one => one.end >= at - near), some = list.slice(i, i + 50).filter(one => one.ts <= at + near);
    return some.find(one => one.ts <= at && one.end >= at) || some[0] || null;
  };
  if (track.counts.length) { if (py >= y && py < y + CURVE) return hit(track.counts); y += CURVE; }
  if (track.states.length) { if (py >= y && py < y + BAND) return hit(track.states); y += BAND; }
  for (const lane of track.lanes) { if (py >= y && py < y + LANE) return hit(lane); y += LANE; }
  return py >= y && py < y + LANE ? hit(track.points) : null;
}
function tell(one) {
  const name = ['event', one.name, one.dur === undefined || one.ph === 'C' ? '' : time(one.dur), 'at ' + time(one.ts)].slice(1).filter(part => part).join(', ');
  const share = one.cat === 'scheduler';
  const facts = Object.entries(one.args).filter(([, value]) => !share || value >= 0.5)
    .map(([key, value]) => key.replaceAll('_', ' ') + ': ' + (share ? value.toFixed(0) + ' %' : value));
  return [name, ...facts].join(String.fromCharCode(10));
}
function choose(one) {
  chosen = one;
  $('detail').textContent = one ? tell(one) : '';
  $('detail').className = one ? '' : 'soft';
  plan();
}
function step(direction) {
  const shown = waits.filter(one => !fades(one));
  if (!shown.length) return;
  const at = shown.indexOf(chosen), begin = direction > 0 ? first(shown, one => one.ts >= from) : first(shown, one => one.ts > to) - 1;
  const one = shown[Math.min(Math.max(at < 0 ? begin : at + direction, 0), shown.length - 1)];
  choose(one);
  if (one.ts < from || one.end > to) show(one.ts - (to - from) / 2, one.ts + (to - from) / 2);
}
function hide() { $('tip').hidden = true; }

const pointers = new Map();
let moved = false;
canvas.addEventListener('pointerdown', event => { pointers.set(event.pointerId, event); moved = false; canvas.setPointerCapture(event.pointerId); hide(); });
canvas.addEventListener('pointermove', event => {
  const before = pointers.get(event.pointerId), box = canvas.getBoundingClientRect();
  if (!before) {
    const one = find(event.clientX - box.left, event.clientY - box.top), tip = $('tip');
    tip.hidden = !one;
    if (!one) return;
    tip.textContent = tell(one);
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4)) + 'px';
    tip.style.top = (event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18) + 'px';
    return;
  }
  const micros = (to - from) / box.width;
  if (pointers.size === 1) {
    if (Math.abs(event.clientX - before.clientX) > 2) moved = true;
    if (moved) show(from - (event.clientX - before.clientX) * micros, to - (event.clientX - before.clientX) * micros);
    else return;
  } else {
    const other = [...pointers.values()].find(one => one.pointerId !== event.pointerId);
    const wide = Math.abs(before.clientX - other.clientX), now = Math.abs(event.clientX - other.clientX);
    moved = true;
    if (wide > 5 && now > 5) zoom(wide / now, from + ((event.clientX + other.clientX) / 2 - box.left) * micros);
  }
  pointers.set(event.pointerId, event);
});
function lift(event) {
  const box = canvas.getBoundingClientRect();
  if (pointers.delete(event.pointerId) && !moved && event.type === 'pointerup') choose(find(event.clientX - box.left, event.clientY - box.top));
}
canvas.addEventListener('pointerup', lift);
canvas.addEventListener('pointercancel', lift);
canvas.addEventListener('pointerleave', hide);
canvas.addEventListener('wheel', event => {
  const box = canvas.getBoundingClientRect(), across = event.shiftKey ? event.deltaY : event.deltaX;
  if (event.ctrlKey || event.metaKey) zoom(1.002 ** event.deltaY, from + (event.clientX - box.left) / box.width * (to - from));
  else if (across) pan(across / box.width);
  else return;
  hide();
  event.preventDefault();
}, {passive: false});
canvas.addEventListener('dblclick', event => { const box = canvas.getBoundingClientRect(); zoom(0.25, from + (event.clientX - box.left) / box.width * (to - from)); });
const KEYS = {'+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), '0': () => show(0, whole), ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2),
  n: () => step(1), p: () => step(-1), Escape: () => { hide(); choose(null); }};
addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  KEYS[event.key]();
  event.preventDefault();
});
for (const [id, key] of [['in', '+'], ['out', '-'], ['all', '0'], ['before', 'p'], ['next', 'n']]) $(id).addEventListener('click', KEYS[key]);
async function open(file) {
  try { load(JSON.parse(await file.text())); $('error').textContent = ''; } catch (error) { $('error').textContent = 'This is no trace: ' + error.message; }
}
$('file').addEventListener('change', () => { if ($('file').files.length) open($('file').files[0]); });
addEventListener('dragover', event => event.preventDefault());
addEventListener('drop', event => { event.preventDefault(); if (event.dataTransfer.files.length) open(event.dataTransfer.files[0]); });
addEventListener('resize', plan);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', plan);
// Bands, bars and marks, with the colour of each as it is drawn.
const LEGEND = [
  ['processes', 'band', [['run', AREAS[0].slice(1)], ['could run', AREAS[1].slice(1)], ['wait, as a line', LINE.slice(1)]]],
  ['what the scheduler does', 'band', [['runs', ['--accent', 0.55]], ['collects garbage', ['--heat', 0.55]], ['other', ['--soft', 0.45]]]],
  ['what takes time', 'key', [['wait', CATEGORIES.wait], ['call on a dirty scheduler', CATEGORIES.call], ['slice of a long call', CATEGORIES.slice]]],
  ['at one instant', 'mark', [['called again', CATEGORIES.busy], ['split, join, grow, shrink, locks', CATEGORIES.adaptation], ['read again', CATEGORIES.read],
    ['memory is retired or reclaimed', CATEGORIES.memory], ['a table comes, goes or changes hands; the VM reports', CATEGORIES.table]]]];
$('key').replaceChildren(...LEGEND.map(([title, kind, entries]) => make('div', [make('b', title), ...entries.map(([name, [colour, alpha]]) => {
  const key = make('span', undefined, {class: kind});
  key.style.cssText = 'background:var(' + colour + ');opacity:' + alpha;
  return make('span', [key, name]);
})])));
load(JSON.parse($('trace').textContent));
