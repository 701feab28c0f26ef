// Keys, selection, large pictures. Every action is a button of a form, so the page works without this file.
"use strict";
(() => {
  const cards = [...document.querySelectorAll("[data-card]")];
  const viewer = document.getElementById("viewer");
  const keys = document.getElementById("keys");
  const large = viewer.querySelector("img");
  const { prefix, back } = document.body.dataset;
  let current = -1;
  let sent = false;
  let seen = null; // the shot that is shown large

  const isTyping = (one) => one.matches("input:not([type=checkbox]), textarea, select");
  const shotsOf = (card) => (card ? [...card.querySelectorAll(".shot input")] : []);

  function go(to, focus = true, scroll = true) {
    if (!cards.length) return;
    current = Math.max(0, Math.min(cards.length - 1, to));
    cards.forEach((card, at) => card.classList.toggle("current", at === current));
    if (focus) {
      cards[current].focus({ preventScroll: true });
      if (scroll) cards[current].scrollIntoView({ block: "nearest" });
    }
  }

  // Without this, a key held down would answer the next question too.
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    if (sent) { event.preventDefault(); return; }
    sent = true;
    keepPlace();
    if (event.submitter) event.submitter.classList.add("sent");
  });
  window.addEventListener("pageshow", () => { sent = false; });

  function step(by, selecting) {
    const card = cards[Math.max(current, 0)];
    const shots = shotsOf(card);
    if (!shots.length) return;
    const at = shots.indexOf(document.activeElement);
    const next = at < 0 ? (by > 0 ? 0 : shots.length - 1) : Math.max(0, Math.min(shots.length - 1, at + by));
    if (selecting) { if (at >= 0) shots[at].checked = true; shots[next].checked = true; }
    shots[next].focus();
  }

  // The photo with a box around the face; the crop where there is no photo.
  function show(shot) {
    const picture = shot && shot.querySelector("img");
    if (!picture) return;
    large.removeAttribute("src"); // not the last one while this one is fetched
    large.src = `${prefix}/${"photo" in shot.dataset ? "photo" : "picture"}/${shot.dataset.row}`;
    large.alt = viewer.querySelector("p").textContent = picture.title;
    seen = shot;
    if (!viewer.open) viewer.showModal();
  }

  large.addEventListener("load", () => {
    if (large.naturalWidth > 1 || !seen || !large.src.includes("/photo/")) return;
    large.src = `${prefix}/picture/${seen.dataset.row}`;
    viewer.querySelector("p").textContent +=
      ". The photo is gone or cannot be read; this is the face that was cut out of it.";
  });

  // An answer leads back to the same page: same place, same row.
  function keepPlace() {
    if (!back) return;
    sessionStorage.setItem("place", JSON.stringify({ back, top: window.scrollY, current }));
  }

  function restorePlace() {
    if (!back) return false; // a question in between
    const kept = JSON.parse(sessionStorage.getItem("place") || "null");
    sessionStorage.removeItem("place");
    if (!kept || kept.back !== back) return false;
    go(kept.current, true, false);
    window.scrollTo({ top: kept.top, behavior: "instant" });
    return true;
  }

  function press(key) {
    const card = cards[current];
    const inside = card && card.querySelector(`[data-key="${CSS.escape(key)}"]:not(:disabled)`);
    const one = inside || [...document.querySelectorAll(`[data-key="${CSS.escape(key)}"]:not(:disabled)`)]
      .find((found) => !found.closest("[data-card]"));
    if (!one) return false;
    if (isTyping(one)) { one.focus(); one.select(); } else one.click();
    return true;
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const target = event.target;
    if (isTyping(target)) {
      if (event.key === "Escape") { target.blur(); go(Math.max(current, 0)); }
      // A form with several buttons would be sent by the first of them.
      const own = target.form?.querySelector(`button[value="${CSS.escape(target.dataset.enter || "")}"]`);
      if (event.key === "Enter" && own) { event.preventDefault(); own.click(); }
      return;
    }
    if (viewer.open) {
      if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
        const shots = [...(seen.closest("[data-card]") || document).querySelectorAll(".shot")];
        const next = shots[shots.indexOf(seen) + (event.key === "ArrowRight" ? 1 : -1)];
        if (next) show(next);
        event.preventDefault();
      }
      return;
    }
    if (keys.open) return;
    const card = cards[Math.max(current, 0)];
    const open = card && card === target && card.dataset.open;
    const pick = card && card === target && card.querySelector(".pick");
    const moves = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1 };
    if (event.key in moves && cards.length) go(current + moves[event.key]);
    else if (event.key === "ArrowRight") step(1, event.shiftKey);
    else if (event.key === "ArrowLeft") step(-1, event.shiftKey);
    else if (event.key === "Enter" && target.closest(".shot")) show(target.closest(".shot"));
    else if (event.key === "Enter" && open) location.href = open;
    else if (event.key === " " && pick) pick.click();
    else if (event.key === "*") {
      const shots = shotsOf(card), all = shots.every((one) => one.checked);
      shots.forEach((one) => { one.checked = !all; });
    } else if (event.key === "?") keys.showModal();
    else if (event.repeat || event.key.length !== 1 || !press(event.key)) return;
    event.preventDefault();
  }

  let last = null;
  document.addEventListener("keydown", onKey);
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
    // Not the second click of two, of which the first opened it.
    if ((event.target === viewer || event.target === keys) && event.detail < 2) event.target.close();
    const face = event.target.closest(".zoom, .shot img");
    const isSelecting = shotsOf(face?.closest("[data-card]")).some((one) => one.checked);
    // With something selected, a click on another face selects that too, as in other programs for photos.
    if (face && (face.matches(".zoom") || !isSelecting)) {
      face.closest(".shot").querySelector("input")?.focus();
      show(face.closest(".shot"));
      event.preventDefault();
    }
    const card = event.target.closest("[data-card]");
    if (card) go(cards.indexOf(card), false);
    const check = event.target.matches(".shot input") ? event.target : null;
    if (check) {
      const shots = shotsOf(check.closest("[data-card]"));
      const [from, to] = [shots.indexOf(last), shots.indexOf(check)];
      if (event.shiftKey && from >= 0) {
        const range = shots.slice(Math.min(from, to), Math.max(from, to) + 1);
        range.forEach((one) => { one.checked = check.checked; });
      }
      last = check;
    }
  });
  if (!restorePlace() && cards.length) go(0, true, false);
})();
