'use strict';
const PERIOD = 2000, POINTS = 40;
const token = new URLSearchParams(location.search).get('token');
if (token) history.replaceState(null, '', location.pathname + location.hash);
// Where operations are not counted, waits and slices of long calls tell how many there are at least.
const COLUMNS = [
  {key: 'name', title: 'Table', text: row => row.name},
  {key: 'size', title: 'Objects', value: row => row.stats.size, show: count},
  {key: 'growth', title: 'Growth/s', value: row => row.rates.size, show: count},
  {key: 'memory', title: 'Memory', value: row => row.stats.memory, show: bytes},
  {key: 'waits', title: 'Waits/s', value: row => row.rates.waits, show: count, hot: true},
  {key: 'operations', title: 'Operations/s', value: row => row.rates.operations, show: count, counted: true, rank: row => row.rates.operations ?? row.rates.waits + row.rates.slices},
  {key: 'scans', title: 'Scans/s', value: row => row.rates.scans, show: count, counted: true},
  {key: 'slices', title: 'Slices/s', value: row => row.rates.slices, show: count, about: 'Long calls, such as scans of large tables, work in slices. They are counted for all tables.'}];
// What the node can sort by. Rates are known here only.
const SORTS = ['size', 'memory', 'waits', 'operations'];
// Options that say what a table does not have. Others are false.
const ABSENT = ['heir none', 'idle infinity'];
const past = new Map(), lines = new Map(), close = make('button', 'Close', {type: 'button'});
let rows = [], sort = 'memory', picked = false, descending = true, chosen = decodeURIComponent(location.hash.slice(1)), paused = false, busy = false;

function count(number) {
  if (number === undefined) return '–';
  if (Math.abs(number) < 10 && number % 1) return number.toFixed(1);
  if (number < 1e6) return Math.round(number).toLocaleString('en');
  return number < 1e8 ? (number / 1e6).toFixed(1) + ' M' : Math.round(number / 1e6).toLocaleString('en') + ' M';
}
function bytes(number) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (number >= 1024 && unit < 4) { number /= 1024; unit += 1; }
  return (unit && number < 100 ? number.toFixed(1) : Math.round(number)) + ' ' + units[unit];
}
function span(seconds) {
  const days = Math.floor(seconds / 86400), hours = Math.floor(seconds / 3600) % 24, minutes = Math.floor(seconds / 60) % 60;
  return days ? days + ' d ' + hours + ' h' : hours ? hours + ' h ' + minutes + ' min' : minutes ? minutes + ' min' : seconds + ' s';
}
function spark(values) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('class', 'spark');
  svg.setAttribute('viewBox', '0 0 72 20');
  svg.setAttribute('aria-hidden', 'true');
  const known = values.filter(value => value !== undefined);
  const least = Math.min(...known), most = Math.max(...known);
  const y = value => most > least ? 18 - 16 * (value - least) / (most - least) : most > 0 ? 10 : 18;
  const line = document.createElementNS('http://www.w3.org/2000/svg', 'polyline');
  const points = values.map((value, i) => value === undefined ? '' : (72 - 72 * (values.length - 1 - i) / (POINTS - 1)).toFixed(1) + ',' + y(value).toFixed(1));
  line.setAttribute('points', points.filter(point => point).join(' '));
  svg.append(line);
  return svg;
}
async function get(path) {
  const answer = await fetch(path, {headers: token ? {authorization: 'Bearer ' + token} : {}});
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}
function remember(row) {
  const before = past.get(row.id) || {points: []};
  const seconds = before.stats ? (row.stats.time - before.stats.time) / 1e6 : 0;
  row.rates = {};
  for (const key of ['size', 'waits', 'operations', 'scans', 'slices', 'hits', 'misses', 'expired', 'evicted'])
    if (row.stats[key] !== undefined) row.rates[key] = seconds > 0 ? (row.stats[key] - before.stats[key]) / seconds : undefined;
  const point = {size: row.stats.size, memory: row.stats.memory, waits: row.rates.waits, operations: row.rates.operations,
    hits: row.rates.hits, misses: row.rates.misses, expired: row.rates.expired, evicted: row.rates.evicted};
  row.points = before.points.concat(point).slice(-POINTS);
  past.set(row.id, {stats: row.stats, points: row.points});
}
function owner(row) {
  return row.owner ? (row.owner.name || row.owner.pid) : 'nobody';
}
function drawHeads() {
  $('heads').replaceChildren(...COLUMNS.map(column => {
    const button = make('button', column.title, {type: 'button'});
    button.addEventListener('click', () => {
      descending = sort === column.key ? !descending : column.key !== 'name';
      sort = column.key;
      picked = true;
      drawHeads();
      drawRows();
    });
    if (column.about) button.title = column.about;
    const state = sort !== column.key ? 'none' : descending ? 'descending' : 'ascending';
    return make('th', button, {scope: 'col', 'aria-sort': state});
  }));
}
// What to sort by before a head was clicked: what tells the busiest table.
function busiest() {
  const any = key => rows.some(row => row.stats[key] > 0);
  return any('operations') ? 'operations' : any('waits') ? 'waits' : 'memory';
}
// A call of `cats' for this table, as one types it.
function call(name, table, argument) {
  return make('code', 'cats:' + name + '(' + (table.named ? table.name : 'list_to_ref("' + table.id + '")') + ', ' + argument + ').');
}
function several(table) {
  return !table.named && rows.filter(row => row.name === table.name).length > 1;
}
function drawUncounted(shown) {
  const uncounted = shown.filter(row => row.stats.operations === undefined), note = $('uncounted');
  note.hidden = !uncounted.length;
  if (uncounted.length) note.replaceChildren('Operations of ' + (uncounted.length > 1 ? uncounted.length + ' tables' : '1 table')
    + ' are not counted. Who may write a table has them counted from now on by ', call('setopts', uncounted[0], '[{stats, true}]'));
}
function drawRows() {
  const wanted = $('filter').value.toLowerCase(), column = COLUMNS.find(one => one.key === sort);
  const shown = rows.filter(row => (row.name + ' ' + row.type + ' ' + row.engine + ' ' + owner(row)).toLowerCase().includes(wanted));
  const figure = column.rank || column.value, rank = row => column.text ? column.text(row) : Number.isFinite(figure(row)) ? figure(row) : -Infinity;
  shown.sort((a, b) => {
    const order = rank(a) < rank(b) ? -1 : rank(a) > rank(b) ? 1 : 0;
    return (descending ? -order : order) || b.stats.memory - a.stats.memory;
  });
  drawUncounted(shown);
  const body = $('rows'), ids = new Set(shown.map(row => row.id));
  for (const [id, line] of lines) if (!ids.has(id)) { line.remove(); lines.delete(id); }
  const focused = document.activeElement;
  shown.forEach((row, i) => {
    const line = drawRow(row);
    if (body.children[i] !== line) body.insertBefore(line, body.children[i] || null);
  });
  // A line that moves loses the focus.
  if (focused !== document.activeElement && body.contains(focused)) focused.focus({preventScroll: true});
}
function drawRow(row) {
  let line = lines.get(row.id);
  if (!line) {
    const link = make('a', undefined, {href: '#' + encodeURIComponent(row.id)});
    line = make('tr', [make('td', [link, make('div', undefined, {class: 'soft'})]), ...COLUMNS.slice(1).map(column => make('td', [make('span')], {'data-title': column.title}))]);
    line.addEventListener('click', () => { location.hash = encodeURIComponent(row.id); });
    lines.set(row.id, line);
  }
  const [first, ...cells] = line.children;
  line.setAttribute('aria-current', row.id === chosen);
  first.children[0].textContent = row.name;
  first.children[1].textContent = row.type + ', ' + row.engine + ', owner ' + owner(row) + (several(row) ? ', ' + row.id : '');
  COLUMNS.slice(1).forEach((column, i) => {
    const value = column.value(row), values = row.points.map(point => point[column.key]), number = cells[i].firstChild;
    const uncounted = column.counted && row.stats.operations === undefined;
    number.textContent = uncounted ? 'not counted' : column.show(value);
    cells[i].className = uncounted ? 'soft' : column.hot && value > 0 ? 'hot' : '';
    cells[i].replaceChildren(number, ...values.some(one => one !== undefined) ? [spark(values)] : []);
  });
  return line;
}
function pairs(facts) {
  return make('dl', facts.flatMap(([name, value]) => [make('dt', name), make('dd', value)]));
}
// Where operations meet: heat strips over the keys, the structure, adaptations, and what is recorded.
let lastStrips = {};
function perSecond(table, strips) {
  const before = lastStrips.id === table.id && lastStrips.strips.length === strips.length ? lastStrips : null;
  const seconds = before ? (table.stats.time - before.time) / 1e6 : 0;
  // What is split meanwhile begins anew, with fewer changes than before.
  const values = seconds > 0 ? strips.map((strip, i) => Math.max(0, strip.changes - before.strips[i].changes) / seconds) : strips.map(() => 0);
  lastStrips = {id: table.id, strips, time: table.stats.time};
  return values;
}
function percent(part, all) {
  const share = all > 0 ? 100 * part / all : 0;
  return (share > 0 && share < 10 ? share.toFixed(1) : Math.round(share)) + ' %';
}
function heat(strips, values, of, order) {
  const most = Math.max(...values), sum = values.reduce((a, b) => a + b, 0), keys = strips.reduce((all, strip) => all + strip.keys, 0);
  const hottest = values.indexOf(most), upTo = strips.slice(0, hottest).reduce((all, strip) => all + strip.keys, 0);
  const where = strips.length < 2 ? 'The table is one part.' : percent(most, sum) + ' of them are in part ' + (hottest + 1) + ' of ' + strips.length + ', '
    + percent(strips[hottest].keys, keys) + ' of the keys' + (order ? ', ' + percent(upTo, keys) + ' of the way through them.' : '.');
  const text = sum > 0 ? where : 'None.';
  const strip = make('div', values.map((value, i) => {
    const part = make('i', undefined, {title: 'part ' + (i + 1) + ': ' + count(value) + ', ' + count(strips[i].keys) + ' keys'});
    part.style.background = 'color-mix(in srgb, var(--heat) ' + (most > 0 ? Math.round(100 * Math.sqrt(value / most)) : 0) + '%, var(--line))';
    return part;
  }), {class: 'heat', role: 'img', 'aria-label': of + ': ' + text});
  return make('div', [make('h3', of), strip, make('p', text, {class: 'soft'})], {class: 'wide'});
}
function bars(title, pairs) {
  const most = Math.max(1, ...pairs.map(pair => pair[1]));
  return make('div', [make('h3', title), make('div', pairs.flatMap(([name, number]) => {
    const bar = make('i');
    bar.style.width = 100 * number / most + '%';
    bar.style.visibility = number ? 'visible' : 'hidden';
    return [make('span', name), bar, make('span', count(number))];
  }), {class: 'bars'})]);
}
function ago(microseconds) {
  return microseconds < 1e7 ? (microseconds / 1e6).toFixed(1) + ' s ago' : span(Math.round(microseconds / 1e6)) + ' ago';
}
function who(process) {
  return process.name || process.pid;
}
function drawMeeting(table) {
  const seen = table.contention;
  if (!seen) return [];
  const tree = table.structure && table.structure.base_nodes !== undefined, recorded = seen.recorded, strips = seen.strips;
  const met = strips.map(strip => recorded ? strip.met : strip.waits);
  const parts = [heat(strips, perSecond(table, strips), 'Changes a second, by ' + (tree ? 'key order' : 'hash'), tree)];
  if (tree || recorded) parts.push(heat(strips, met, recorded ? 'Waits that were recorded' : 'Waits since base nodes were made', tree));
  if (tree) {
    const bases = seen.bases, busiest = bases.reduce((a, b) => b.waits > a.waits ? b : a);
    const height = bases.map(base => base.height + (bases.length > 1 ? 1 : 0)), range = (least, most) => least === most ? count(least) : count(least) + ' to ' + count(most);
    parts.push(make('div', [make('h3', 'Tree'), pairs([['base nodes', count(bases.length)], ['leaves', count(bases.reduce((sum, base) => sum + base.leaves, 0))],
      ['nodes above a leaf', range(Math.min(...height), Math.max(...height))], ['most waits in one', count(busiest.waits) + ', with ' + count(busiest.keys) + ' keys'],
      ['contention statistic', range(Math.min(...bases.map(base => base.statistic)), Math.max(...bases.map(base => base.statistic)))]])]));
    parts.push(bars('Leaves by room', seen.leaves.map(({size, number}) => [size + ' keys', number])));
  } else {
    parts.push(bars('Buckets by keys', seen.load.map(({size, number}) => [size === 16 ? '16 or more' : String(size), number])));
  }
  const stream = seen.adaptations, noun = number => tree ? number === 1 ? ' base node' : ' base nodes' : ' buckets';
  parts.push(make('div', [make('h3', 'Adaptations'), ...stream.length ? [spark(stream.slice(-POINTS).map(one => one.number)),
    make('ol', stream.slice(-6).reverse().map(one => make('li', ago(one.ago) + ': ' + one.kind + ' to ' + count(one.number) + noun(one.number))))] : [make('p', 'None so far.', {class: 'soft'})]]));
  if (recorded) {
    parts.push(make('div', [make('h3', 'Met most, in ' + span(Math.round(recorded.time / 1e6))), make('ol', recorded.places.slice(0, 6).map(place => make('li',
      (place.strip ? 'part ' + place.strip : 'elsewhere') + ': ' + count(place.waits) + ' waits, ' + count(place.reads_repeated) + ' reads again, ' + place.processes.map(who).join(' '))))]));
    parts.push(make('div', [make('h3', 'Who waited for whom'), make('ol', recorded.meetings.slice(0, 6).map(one => make('li',
      who(one.process) + ' ' + count(one.waits) + ' times, while ' + who(one.other) + ' was in a call')))]));
  } else {
    parts.push(make('p', ['To see which processes meet, record for a minute in a shell of the node: ', call('contention', table, '60000')], {class: 'soft wide'}));
  }
  return [make('div', parts, {class: 'meeting'})];
}
function courses(row, options) {
  const expires = options.ttl || options.idle || options.limit;
  const shown = [['hits', 'hits/s', count], ['misses', 'misses/s', count], ...expires ? [['expired', 'expired/s', count]] : [],
    ...options.limit ? [['evicted', 'evicted/s', count]] : [], ['memory', 'memory', bytes]];
  return pairs(shown.map(([key, name, show]) => [name, show, row.points.map(point => point[key])])
    .filter(([, , values]) => values.some(value => value !== undefined))
    .map(([name, show, values]) => [name, make('span', [spark(values), show(values.at(-1))])]));
}
function drawDetail(table) {
  const panel = $('detail'), focused = document.activeElement === close;
  panel.hidden = !chosen;
  if (!chosen) return;
  const title = make('h2', !table ? 'This table does not exist any more.' : several(table) ? table.name + ' ' + table.id : table.name);
  title.style.flex = '1';
  const head = make('div', [title, close], {class: 'tools'});
  if (!table) panel.replaceChildren(head); else drawFacts(panel, head, table);
  if (focused) close.focus();
}
// The parts of the structure. Those of a tree are shown where operations meet.
function structure({structure: found, contention}) {
  return !found ? [] : found.buckets !== undefined ? [['buckets', count(found.buckets)]]
    : contention ? [] : [['base nodes', count(found.base_nodes)], ['route nodes', count(found.route_nodes)], ['depth of routes', count(found.depth)]];
}
function spread(found) {
  return !found || found.buckets === undefined ? [] : [make('p', 'A bucket has ' + found.average.toFixed(1) + ' objects on average, and from ' + count(found.least) + ' to '
    + count(found.most) + '. The standard deviation is ' + found.deviation.toFixed(1) + '. It would be ' + found.expected_deviation.toFixed(1)
    + ' if each key fell into any bucket by chance.', {class: 'soft'})];
}
function limit(stats) {
  if (stats.limit_objects !== undefined) return [['of the limit', count(stats.used_objects) + ' of ' + count(stats.limit_objects)]];
  if (stats.limit_bytes !== undefined) return [['of the limit', bytes(stats.used_bytes) + ' of ' + bytes(stats.limit_bytes)]];
  return [];
}
function drawFacts(panel, head, table) {
  const stats = table.stats;
  const part = (name, ...content) => make('div', [make('h3', name), ...content]);
  const contention = [['waits for locks', count(stats.waits)], ['waited in all', count(stats.wait_time) + ' µs'],
    ['waits given up', count(stats.waits_given_up)], ['reads repeated', count(stats.reads_repeated)], ['calls made again', count(stats.busy)],
    ['splits and joins', count(stats.splits) + ' / ' + count(stats.joins)]];
  const calls = [['on dirty schedulers', count(stats.dirty)], ['slices of long calls', count(stats.slices)], ['of a millisecond or more', count(stats.long_slices)]];
  const kinds = ['lookups', 'hits', 'misses', 'inserts', 'updates', 'deletes', 'steps', 'scans'];
  const operations = stats.operations === undefined ? make('p', ['Not counted. The owner counts them from now on when it calls ', call('setopts', table, '[{stats, true}]')], {class: 'soft'})
    : pairs(kinds.map(kind => [kind, count(stats[kind])]));
  const who = table.owner ? [['process', table.owner.pid], ['name', table.owner.name], ['began with', table.owner.initial_call],
    ['now in', table.owner.current_function], ['messages waiting', table.owner.message_queue, count], ['memory', table.owner.memory, bytes]]
    .filter(([, value]) => value !== undefined && value !== null).map(([name, value, show]) => [name, show ? show(value) : value]) : [['process', 'nobody']];
  const classes = ['< 1 µs', '< 4 µs', '< 16 µs', '< 64 µs', '< 256 µs', 'longer'], most = Math.max(1, ...stats.waits_by_length);
  const waits = make('div', stats.waits_by_length.flatMap((number, i) => {
    const bar = make('i');
    bar.style.width = 100 * number / most + '%';
    bar.style.visibility = number ? 'visible' : 'hidden';
    return [make('span', classes[i]), bar, make('span', count(number))];
  }), {class: 'waits'});
  panel.replaceChildren(head, ...drawMeeting(table), make('div', [
    ...rows.filter(row => row.id === chosen).map(row => part('Over time', courses(row, table.options))),
    part('Contents', pairs([['objects', count(stats.size)], ['memory', bytes(stats.memory)], ...limit(stats), ...structure(table)]), ...spread(table.structure)),
    part('Owner', pairs(who)), part('Operations', operations), part('Contention', pairs(contention)), ...stats.waits ? [part('Waits by length', waits)] : [],
    part('Long calls', pairs(calls)), part('Options', pairs(Object.entries(table.options).filter(([name, value]) => value !== 'false' && !ABSENT.includes(name + ' ' + value))
      .map(([name, value]) => [name.replaceAll('_', ' '), value])))], {class: 'columns'}));
}
function drawNode(node) {
  document.title = 'cats ' + node.node;
  $('node').textContent = node.node;
  $('about').textContent = 'version ' + node.version + ', OTP ' + node.otp + ', up ' + span(node.uptime) + ', ' + count(node.processes) + ' processes, ' + node.schedulers + ' schedulers';
  const memory = node.memory, other = Math.max(0, memory.system - memory.cats - memory.binary - memory.ets);
  const parts = [['tables of cats', memory.cats, 'var(--accent)'], ['processes', memory.processes, 'var(--vm)'], ['binaries', memory.binary, 'color-mix(in srgb, var(--vm) 70%, var(--card))'],
    ['tables of ets', memory.ets, 'color-mix(in srgb, var(--heat) 60%, var(--card))'], ['other', other, 'color-mix(in srgb, var(--vm) 35%, var(--card))']];
  const all = parts.reduce((sum, part) => sum + part[1], 0);
  $('bar').replaceChildren(...parts.map(([, value, colour]) => {
    const piece = make('span');
    piece.style.cssText = 'width:' + 100 * value / all + '%;background:' + colour;
    return piece;
  }));
  $('memory').replaceChildren(...parts.map(([name, value, colour]) => {
    const key = make('span', undefined, {class: 'key'});
    key.style.background = colour;
    return make('span', [key, name + ' ', make('b', bytes(value))]);
  }), make('span', ['the VM in all ', make('b', bytes(memory.total))]), make('span', [make('b', bytes(memory.garbage)), ' of deleted or replaced objects of cats are not freed yet']));
}
async function refresh() {
  if (busy) return;
  busy = true;
  try {
    const answers = [get('api/node'), get('api/tables?sort=' + (SORTS.includes(sort) ? sort : 'memory'))];
    if (chosen) answers.push(get('api/table?id=' + encodeURIComponent(chosen)));
    const [node, tables, table] = await Promise.all(answers);
    rows = tables.tables;
    rows.forEach(remember);
    if (!picked && sort !== busiest()) {
      sort = busiest();
      drawHeads();
    }
    drawNode(node);
    $('number').textContent = rows.length < tables.number ? rows.length + ' of ' + tables.number : tables.number;
    drawRows();
    drawDetail(table);
    $('error').textContent = '';
  } catch (error) {
    $('error').textContent = error instanceof TypeError ? 'The node does not answer.' : error.message;
  }
  busy = false;
}
addEventListener('hashchange', () => {
  chosen = decodeURIComponent(location.hash.slice(1));
  drawRows();
  refresh().then(() => { if (chosen) $('detail').scrollIntoView({block: 'nearest'}); });
});
addEventListener('keydown', event => {
  if (event.target.tagName === 'INPUT') { if (event.key === 'Escape') event.target.blur(); return; }
  if (event.key === 'Escape') location.hash = '';
  if (event.key === '/') { event.preventDefault(); $('filter').focus(); }
  if (event.key === 'p' && !event.ctrlKey && !event.metaKey) $('pause').click();
});
close.addEventListener('click', () => { location.hash = ''; });
$('filter').addEventListener('input', drawRows);
$('pause').addEventListener('click', () => {
  paused = !paused;
  $('pause').textContent = paused ? 'Go on' : 'Pause';
  $('pause').setAttribute('aria-pressed', paused);
});
drawHeads();
refresh();
setInterval(() => { if (!paused && !document.hidden) refresh(); }, PERIOD);
