// The strip shows the attempts of the last minute, one mark each. Attempts that passed
// stand above the line, refused ones below it. A column is two seconds.

import {attribute, text} from "./gauge.js";

const minute = 60_000;
const span = 2000; // ms of a column
const wide = 2; // marks beside each other in a column
const outcomes = ["passed", "held", "refused", "banned"];
const above = {passed: true, held: true};

export class Strip {
	constructor(element) {
		this.svg = element.querySelector("svg");
		this.tally = element.querySelector(".tally");
		this.attempts = []; // {user, at, outcome}, the oldest first
		this.columns = new Map(); // start -> element
		this.width = this.height = 0;
		this.user = "";
		this.line = this.svg.appendChild(shape("line", {class: "zero"}));
		new ResizeObserver(() => this.measure()).observe(this.svg);
	}

	add(user, outcome) {
		this.attempts.push({user, outcome, at: performance.now()});
		this.draw();
	}

	show(user) {
		this.user = user;
		this.draw();
	}

	measure() {
		const box = this.svg.getBoundingClientRect();
		this.width = box.width;
		this.height = box.height;
		const y = Math.round(this.height / 2);
		for (const [name, value] of Object.entries({x1: 0, x2: this.width, y1: y, y2: y})) attribute(this.line, name, value);
		this.draw();
	}

	// draw makes the columns anew; tick only moves them.
	draw() {
		for (const column of this.columns.values()) column.remove();
		this.columns.clear();
		const columns = new Map(); // start -> outcome -> number
		const count = {};
		for (const {user, at, outcome} of this.attempts) {
			if (user !== this.user) continue;
			const start = Math.floor(at / span) * span;
			if (!columns.has(start)) columns.set(start, {passed: 0, held: 0, refused: 0, banned: 0});
			columns.get(start)[outcome]++;
			count[outcome] = (count[outcome] ?? 0) + 1;
		}
		const said = outcomes.filter((o) => count[o]).map((o) => `${count[o]} ${o}`).join(", ");
		text(this.tally, said || "nothing yet");

		let most = 1; // marks above or below the line
		for (const c of columns.values()) most = Math.max(most, c.passed + c.held, c.refused + c.banned);
		const height = Math.min(7, (this.height / 2 - 2) / Math.ceil(most / wide));
		const width = Math.min(7, (this.width * span) / (minute + span) / wide);
		for (const [start, c] of columns) {
			const column = shape("g", {});
			let up = 0, down = 0;
			for (const outcome of outcomes) {
				for (let i = 0; i < c[outcome]; i++) {
					const n = above[outcome] ? up++ : down++;
					const row = Math.floor(n / wide);
					const y = above[outcome] ? -1.5 - (row + 1) * height : 1.5 + row * height;
					column.append(mark(outcome, (n % wide) * width, y, width - 1, height - 1));
				}
			}
			this.columns.set(start, column);
			this.svg.append(column);
		}
		this.tick(performance.now());
	}

	// tick moves the strip to the instant now; calm does so once a second.
	tick(now, calm) {
		const kept = this.attempts.findIndex((a) => now - a.at < minute);
		if (kept !== 0 && this.attempts.length > 0) {
			this.attempts = kept < 0 ? [] : this.attempts.slice(kept);
			this.draw();
			return;
		}
		const shown = calm ? Math.ceil(now / 1000) * 1000 : now;
		for (const [start, column] of this.columns) {
			const x = this.width * (1 - (shown - start + span) / (minute + span));
			column.setAttribute("transform", `translate(${x.toFixed(1)} ${Math.round(this.height / 2)})`);
		}
	}
}

function mark(outcome, x, y, width, height) {
	// A hollow mark is drawn inside its box, so that it is no larger than a solid one.
	const inset = outcome === "held" || outcome === "banned" ? 0.5 : 0;
	return shape("rect", {
		class: "mark " + outcome, x: x + inset, y: y + inset, rx: 1,
		width: Math.max(1, width - 2 * inset), height: Math.max(0.5, height - 2 * inset),
	});
}

function shape(name, attributes) {
	const element = document.createElementNS("http://www.w3.org/2000/svg", name);
	for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
	return element;
}
