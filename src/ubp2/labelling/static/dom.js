// Small helpers for the page. Text goes in as text nodes only, so that nothing a server says can become markup.

export const $ = (id) => document.getElementById(id);

/** An element with properties (`class`, `on...`, attributes) and children; strings become text. */
export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Set text only where it differs: a live region that is written anew is read out anew. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Random text, also where the page is not a "secure context" (plain http on a local network has no randomUUID). */
export function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

/** localStorage, or memory where the browser forbids it; `lasting` says which. */
export const shelf = (() => {
  const memory = new Map();
  let lasting = true;
  try {
    localStorage.setItem("ubp2.probe", "1");
    localStorage.removeItem("ubp2.probe");
  } catch {
    lasting = false;
  }
  return {
    get lasting() { return lasting; },
    get(key) {
      if (memory.has(key)) return memory.get(key);
      try { return localStorage.getItem(key); } catch { return null; }
    },
    set(key, value) {
      try {
        localStorage.setItem(key, value);
        memory.delete(key);
      } catch {
        lasting = false;
        memory.set(key, value);
      }
    },
    remove(key) {
      memory.delete(key);
      try { localStorage.removeItem(key); } catch { /* it was never there */ }
    },
    keys() {
      try { return [...new Set([...Object.keys(localStorage), ...memory.keys()])]; } catch { return [...memory.keys()]; }
    },
  };
})();
