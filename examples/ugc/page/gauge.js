// A gauge shows how much of one action is left.

import {duration, whole} from "./standing.js";

const circumference = 2 * Math.PI * 50;
const names = {reply: ["reply", "replies"], like: ["like", "likes"], post: ["post", "posts"]};

// amount says a number of replies, likes or posts.
export function amount(action, n) {
	return `${n} ${names[action][n === 1 ? 0 : 1]}`;
}

export class Gauge {
	constructor(element) {
		this.element = element;
		this.action = element.dataset.action;
		this.ring = element.querySelector(".ring");
		this.maxWait = Number(this.ring.dataset.maxWait);
		this.parts = {};
		for (const name of ["remaining", "of", "says", "whole", "more"]) {
			this.parts[name] = element.querySelector("." + name);
		}
		this.icon = element.querySelector(".state use");
		this.longest = 0; // the wait when it began
	}

	// forget drops the numbers. What is seen stays until the next call of show or blank.
	forget() {
		for (const name of ["limit", "remaining", "retry", "state", "held"]) delete this.element.dataset[name];
		this.longest = 0;
	}

	// blank draws a gauge without numbers, as at first.
	blank() {
		style(this.ring, "--level", "0");
		style(this.ring, "--wait", "0");
		attribute(this.icon, "href", "#icon-open");
		attribute(this.ring, "aria-valuemax", 0);
		attribute(this.ring, "aria-valuenow", 0);
		attribute(this.ring, "aria-valuetext", "not known yet");
		const first = {remaining: "–", of: "", says: "…", whole: "", more: ""};
		for (const [name, words] of Object.entries(first)) text(this.parts[name], words);
	}

	// show draws a standing. held is how many requests wait for their turn; calm shows
	// whole units only.
	show(s, held, calm) {
		const e = this.element;
		set(e, "limit", s.quota);
		set(e, "remaining", s.left);
		set(e, "state", s.state);
		set(e, "retry", s.retry > 0 ? Math.ceil(s.retry / 1000) : null);
		set(e, "held", held || null);

		this.longest = s.retry > 0 ? Math.max(this.longest, s.retry) : 0;
		style(this.ring, "--level", ((calm ? s.left : s.level) / s.quota).toFixed(4));
		style(this.ring, "--wait", this.longest ? (s.retry / this.longest).toFixed(4) : "0");
		style(this.ring, "--unit", circumference / s.quota + "px");
		style(this.ring, "--gap", s.quota > 40 ? "0px" : "3px");
		attribute(this.icon, "href", "#icon-" + s.state);
		attribute(this.ring, "aria-valuemax", s.quota);
		attribute(this.ring, "aria-valuenow", s.left);
		attribute(this.ring, "aria-valuetext", `${s.left} of ${amount(this.action, s.quota)} left`);
		text(this.parts.remaining, s.left);
		text(this.parts.of, `of ${s.quota}`);
		text(this.parts.says, this.says(s, held));
		text(this.parts.whole, whole(s));
		text(this.parts.more, more(s));
	}

	says(s, held) {
		if (s.state === "banned") return `banned ${duration(s.retry)}`;
		if (held) return held === 1 ? "one waits its turn" : `${held} wait their turn`;
		if (s.state === "waiting") return `next in ${duration(s.retry)}`;
		return "free now";
	}
}

function more(s) {
	if (s.state === "banned") return s.ban.level > 1 ? `ban ${s.ban.level} in a row` : "after too many refusals";
	if (s.ban.refusals > 0) return `${s.ban.refusals} ${s.ban.refusals === 1 ? "refusal counts" : "refusals count"} towards a ban`;
	return s.limit;
}

// text, attribute, style and set change the document only where it differs, so that
// nothing flickers and a selection stays.
export function text(element, value) {
	value = String(value);
	if (element.textContent !== value) element.textContent = value;
}

export function attribute(element, name, value) {
	value = String(value);
	if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

function style(element, name, value) {
	if (element.style.getPropertyValue(name) !== value) element.style.setProperty(name, value);
}

function set(element, name, value) {
	if (value === null) delete element.dataset[name];
	else if (element.dataset[name] !== String(value)) element.dataset[name] = value;
}
