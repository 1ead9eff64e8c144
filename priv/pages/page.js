'use strict';
// What both pages use.
const $ = id => document.getElementById(id);
function make(name, content, attributes) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  for (const part of [].concat(content === undefined ? [] : content)) element.append(part);
  return element;
}
