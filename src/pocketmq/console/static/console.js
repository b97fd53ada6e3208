// Theme and live updates. Every page also works without scripts.
"use strict";

const root = document.documentElement;
const savedTheme = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
if (savedTheme === "light" || savedTheme === "dark") root.dataset.theme = savedTheme;

const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

function setUpTheme() {
  const button = document.getElementById("theme");
  if (!button) return;
  const showLabel = () => { button.textContent = isDark() ? "Light" : "Dark"; button.setAttribute("aria-label", `Use ${isDark() ? "light" : "dark"} colours`); };
  button.hidden = false;
  showLabel();
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* not available in private windows */ }
    showLabel();
  });
}

// Updates only what changed, so that focus, selection and scroll position stay.
function update(live, html) {
  const next = document.createElement("template");
  next.innerHTML = html;
  const fresh = [...next.content.children];
  const old = [...live.children];
  const same = fresh.length === old.length && fresh.every((node, at) => node.tagName === old[at].tagName && node.id === old[at].id);
  if (!same) { if (!live.contains(document.activeElement)) live.replaceChildren(...fresh); return; }
  fresh.forEach((node, at) => morph(old[at], node));
}

function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  const sameShape = old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName;
  if (!sameShape) { old.replaceWith(fresh); return; }
  if (old.nodeType !== Node.ELEMENT_NODE) { old.nodeValue = fresh.nodeValue; return; }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const before = [...old.childNodes], after = [...fresh.childNodes];
  after.forEach((node, at) => at < before.length ? morph(before[at], node) : old.append(node));
  before.slice(after.length).forEach((node) => node.remove());
}

function watch() {
  const at = document.body.dataset.liveAt, live = document.getElementById("live"), pulse = document.getElementById("pulse");
  if (!at || !live || !pulse) return;
  const status = document.getElementById("pulse-text"), main = document.getElementById("main");
  let source = null;
  const open = () => {
    if (source) return;
    source = new EventSource(`/live?at=${encodeURIComponent(at)}`);
    source.addEventListener("live", (event) => {
      if (String(getSelection()).length === 0) update(live, JSON.parse(event.data));
      main.classList.toggle("is-grey", document.getElementById("problem") !== null);
    });
    source.onopen = () => { pulse.hidden = false; pulse.classList.remove("is-lost"); status.textContent = "live"; };
    source.onerror = () => { pulse.hidden = false; pulse.classList.add("is-lost"); status.textContent = "connection to the console lost"; };
  };
  const close = () => { if (source) source.close(); source = null; };
  // A hidden page requests nothing.
  document.addEventListener("visibilitychange", () => document.hidden ? close() : open());
  addEventListener("pagehide", close);
  if (!document.hidden) open();
}

document.addEventListener("DOMContentLoaded", () => {
  setUpTheme();
  document.querySelector(".menu [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
  watch();
});
