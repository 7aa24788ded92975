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
    form.querySelectorAll("input, select").forEach((field) => { if (!field.value || field.value === field.dataset.usual) field.disabled = true; });
  }));
  addEventListener("pageshow", () => document.querySelectorAll("form[method=get] :disabled").forEach((field) => { field.disabled = false; }));

  // A list in a file has all its rows in the page, and no server that would filter and sort them.
  const form = document.querySelector("form[data-rows]");
  if (form) list(form, document.querySelector("table.list"));
  function list(form, table) {
    const body = table.tBodies[0], all = [...body.rows];
    const counted = document.querySelector("[data-count]"), share = document.querySelector("[data-share]");
    const usual = form.elements.sort?.dataset.usual;
    const nothing = document.querySelector("[data-nothing]");
    const least = (of, name, wanted, scale = 1) => wanted === undefined || (of[name] !== "" && scale * of[name] >= wanted);
    const fits = (of, given) => of.text.includes((given.text ?? "").toLowerCase())
      && (!given.outcome || (of.success === "1") === (given.outcome === "won"))
      && (!given.family || of.family === given.family)
      && least(of, "turns", given.shortest) && (given.longest === undefined || Number(of.turns) <= given.longest)
      && least(of, "invalid", given.invalid, 100);
    const sorted = (rows, sort) => {
      const key = sort.replace(/^-/, ""), texts = key === "rollout" || key === "family";
      const down = table.querySelector(`[data-sort="${key}"]`)?.matches("[data-down]") ?? false;
      const sign = down === sort.startsWith("-") ? 1 : -1, value = (row) => texts ? row.dataset[key] : Number(row.dataset[key]);
      const compare = (a, b) => {
        if (a.dataset[key] === "" || b.dataset[key] === "") return (a.dataset[key] === "") - (b.dataset[key] === "");
        return sign * ((value(a) > value(b)) - (value(a) < value(b)));
      };
      return rows.sort((a, b) => compare(a, b) || a.dataset.order - b.dataset.order);
    };
    function show() {
      const given = Object.fromEntries([...new FormData(form)].filter(([name, value]) => value && !(name === "sort" && value === usual)));
      const rows = all.filter((row) => fits(row.dataset, given));
      if (form.elements.sort) {
        const sort = given.sort ?? usual, up = (cell) => cell.matches("[data-down]") === sort.startsWith("-");
        sorted(rows, sort);
        table.querySelectorAll("[data-sort]").forEach((cell) => {
          if (cell.dataset.sort !== sort.replace(/^-/, "")) cell.parentElement.removeAttribute("aria-sort");
          else cell.parentElement.ariaSort = up(cell) ? "ascending" : "descending";
        });
      }
      body.replaceChildren(...rows);
      if (counted) counted.textContent = (rows.length < all.length ? `${rows.length.toLocaleString("en")} of ` : "") + `${all.length.toLocaleString("en")} rollouts`;
      if (share) share.textContent = rows.length ? `${Math.round(100 * rows.filter((row) => row.dataset.success === "1").length / rows.length)}% succeeded` : "nothing found";
      if (nothing) nothing.hidden = rows.length > 0;
      history.replaceState(null, "", `#${new URLSearchParams(given)}`);  // an address that can be passed on
      dispatchEvent(new Event("listed"));
    }
    table.querySelectorAll("[data-sort]").forEach((cell) => cell.addEventListener("click", () => {
      const key = cell.dataset.sort;
      form.elements.sort.value = form.elements.sort.value === key ? `-${key}` : key;
      show();
    }));
    form.addEventListener("submit", (event) => { event.preventDefault(); show(); });
    form.addEventListener("input", show);
    form.addEventListener("reset", () => setTimeout(show));
    const given = [...new URLSearchParams(location.hash.slice(1))].filter(([name]) => form.elements.namedItem(name));
    given.forEach(([name, value]) => { form.elements.namedItem(name).value = value; });
    if (given.length) show();
  }

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
  function say(line) {  // what keeps the page from being renewed
    const shown = document.getElementById("stale") ?? document.createElement("p");
    shown.remove();
    if (!line) return;
    Object.assign(shown, { id: "stale", className: "problem", textContent: line });
    shown.setAttribute("role", "status");
    live.before(shown);
  }
  async function again() {
    if (document.hidden) return;
    let answer, text;
    try {
      answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      text = await answer.text();
    } catch { return say("The viewer has ended. This page stays as it was."); }
    if (answer.status === 304) return say("");
    const page = new DOMParser().parseFromString(text, "text/html"), fresh = page.getElementById("live");
    if (!fresh) return say(page.querySelector(".problem")?.textContent ?? text);
    say("");
    tag = answer.headers.get("ETag") || "";
    if (fresh.innerHTML === live.innerHTML) return;
    const had = document.activeElement?.closest?.("[data-run]") ? [run, round] : null;
    live.replaceChildren(...fresh.childNodes);
    untab();
    dispatchEvent(new Event("listed"));
    if (had) { [run, round] = had; focus(); }
  }
  if (live && seconds) setInterval(again, 1000 * seconds);
})();
