"use strict";
(() => {
  // The list's search field, and choices that are made at once.
  const search = document.querySelector("[data-search]");
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || !search) return;
    if (event.target.closest("input, select, textarea")) return;
    event.preventDefault();
    search.focus();
    search.select();
  });
  document.querySelectorAll(".filter select").forEach((choice) => choice.addEventListener("change", () => choice.form.requestSubmit()));
  // Empty fields stay out of the address, so that it can be passed on.
  document.querySelectorAll("form[method=get]").forEach((form) => form.addEventListener("submit", () => {
    form.querySelectorAll("input, select").forEach((field) => { if (!field.value || (field.name === "sort" && field.value === "order")) field.disabled = true; });
  }));
  addEventListener("pageshow", () => document.querySelectorAll("form[method=get] :disabled").forEach((field) => { field.disabled = false; }));

  // Runs by round: arrows move between runs and rounds; one of them can be reached with Tab.
  let run = 0, round = -1;
  const rows = () => [...document.querySelectorAll("[data-run]")];
  function focus() {
    const all = rows();
    if (!all.length) return;
    run = Math.max(0, Math.min(all.length - 1, run));
    const cells = [...all[run].querySelectorAll("a.k")];
    round = Math.max(-1, Math.min(cells.length - 1, round));
    all.forEach((row, place) => { row.tabIndex = place === run ? 0 : -1; });
    (round < 0 ? all[run] : cells[round]).focus();
  }
  const moves = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
  document.addEventListener("keydown", (event) => {
    const row = event.target.closest?.("[data-run]"), move = moves[event.key];
    if (!row || !move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    run = rows().indexOf(row) + move[0];
    round = [...row.querySelectorAll("a.k")].indexOf(event.target) + move[1];
    focus();
  }, true);
  const untab = () => document.querySelectorAll("[data-run] a.k").forEach((cell) => { cell.tabIndex = -1; });
  untab();

  // The live part of a page is fetched again; the rest stays, and so does what has the focus.
  const live = document.getElementById("live"), seconds = Number(document.body.dataset.refresh || 0);
  let tag = "";
  async function again() {
    if (document.hidden) return;
    try {
      const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.status !== 200) return;
      tag = answer.headers.get("ETag") || "";
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("live");
      if (!fresh || fresh.innerHTML === live.innerHTML) return;
      const had = document.activeElement?.closest?.("[data-run]") ? [run, round] : null;
      live.replaceChildren(...fresh.childNodes);
      untab();
      if (had) { [run, round] = had; focus(); }
    } catch { /* the viewer has ended; the page stays as it is */ }
  }
  if (live && seconds) setInterval(again, 1000 * seconds);
})();
