"use strict";
(() => {
  const root = document.documentElement, body = document.body;
  root.classList.add("js");
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const boxes = all(".controls input");
  const usual = new Set(body.dataset.off.split(" ").filter(Boolean));
  const stored = () => { try { return JSON.parse(localStorage.getItem("turncredit columns")) || {}; } catch { return {}; } };
  const keep = (shown) => { try { localStorage.setItem("turncredit columns", JSON.stringify(shown)); } catch { /* private window */ } };

  function show() {
    body.dataset.off = boxes.filter((box) => !box.checked).map((box) => box.value).join(" ");
    body.classList.toggle("many", boxes.filter((box) => box.checked).length > 7);
  }
  function set(rule) { boxes.forEach((box) => { box.checked = rule(box.value); }); show(); remember(); }
  function remember() { keep(Object.fromEntries(boxes.map((box) => [box.name, box.checked]))); }
  const chosen = stored();
  boxes.forEach((box) => { box.checked = box.name in chosen ? chosen[box.name] : !usual.has(box.value); });
  boxes.forEach((box) => box.addEventListener("change", () => { show(); remember(); }));
  if (boxes.length) show();

  const modes = [() => true, () => false, (value) => !usual.has(value)];
  let mode = 0;
  const toggle = () => { set(modes[mode]); mode = (mode + 1) % modes.length; };
  all("[data-columns]").forEach((button) => button.addEventListener("click", () => {
    mode = ["all", "none", "usual"].indexOf(button.dataset.columns);
    toggle();
  }));

  let stops = all("[data-stop]"), now = -1;
  addEventListener("listed", () => { stops = all("[data-stop]"); now = -1; });  // a list has other lines now
  function go(place, scroll = true) {
    if (!stops.length) return;
    now = Math.max(0, Math.min(stops.length - 1, place));
    all(".now", document).forEach((old) => old.classList.remove("now"));
    const stop = stops[now];
    stop.classList.add("now");
    stop.focus({ preventScroll: true });
    if (scroll) stop.scrollIntoView({ block: "center", behavior: "auto" });
    all("[data-cursor]").forEach((cursor) => {
      const wide = 100 / Number(cursor.dataset.cursor);
      cursor.style.left = `${now * wide}%`;
      cursor.style.width = `${wide}%`;
      cursor.className = "now";
    });
  }
  const fromHash = () => {
    const place = stops.findIndex((stop) => stop.id && `#${stop.id}` === location.hash);
    if (place >= 0) go(place);
  };
  addEventListener("hashchange", fromHash);
  fromHash();
  addEventListener("click", (event) => {
    const place = stops.indexOf(event.target.closest("[data-stop]"));
    if (place >= 0 && !event.target.closest("a, summary, button, input")) go(place, false);
  });

  const help = document.getElementById("help");
  const follow = (name) => { const link = document.querySelector(`a[rel~="${name}"]`); if (link) link.click(); };
  const keys = {
    j: () => go(now + 1), k: () => go(now < 0 ? 0 : now - 1),
    ArrowRight: () => follow("next"), ArrowLeft: () => follow("prev"),
    m: toggle, u: () => follow("up"), g: () => follow("group"), p: () => follow("pair"),
    o: () => { const part = stops[now]?.querySelector("details"); if (part) part.open = !part.open; },
    "?": () => (help.open ? help.close() : help.showModal()),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox]), textarea, select")) return;
    if (help.open && event.key !== "?") return;
    const action = keys[event.key];
    if (action) { event.preventDefault(); action(); }
    else if (event.key === "Enter" && event.target === stops[now]) stops[now].querySelector("a")?.click();
  });
  all("[data-help]").forEach((button) => button.addEventListener("click", () => help.showModal()));
})();
