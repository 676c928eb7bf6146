// The drawer shows the last request and its response, the code that made the limit,
// and the state of each of its limits.

import {text} from "./gauge.js";
import {duration} from "./standing.js";

const telling = /^(x-ratelimit-|retry-after|ratelimit)/i;

export class Drawer {
	constructor(element) {
		this.element = element;
		this.request = element.querySelector("#request");
		this.response = element.querySelector("#response");
		this.action = "reply";
	}

	// turn shows the code of another action's limit.
	turn(action) {
		this.action = action;
		for (const code of this.element.querySelectorAll("[data-code]")) code.hidden = code.dataset.code !== action;
	}

	// exchange shows a request and its answer.
	exchange({request, status, title, headers, text}) {
		this.request.replaceChildren(...lines(`${request.method} ${request.path}`, request.headers, request.body));
		this.response.replaceChildren(...lines(`${status} ${title}`, headers, text.trim()));
	}

	// blank empties the tables.
	blank() {
		for (const body of this.element.querySelectorAll("tbody")) body.replaceChildren();
	}

	// table shows how every limit of the action stands.
	table(standing) {
		const body = this.element.querySelector(`[data-code="${this.action}"] tbody`);
		while (body.rows.length < standing.limits.length) {
			const row = body.insertRow();
			for (let i = 0; i < 4; i++) row.insertCell();
		}
		standing.limits.forEach((l, i) => {
			const values = [
				l.shadow ? `${l.limit} (shadow)` : l.limit,
				`${l.left} of ${l.quota}`,
				l.retry > 0 ? duration(l.retry) : "now",
				l.unstarted ? "–" : l.reset > 0 ? duration(l.reset) : "now",
			];
			values.forEach((value, j) => text(body.rows[i].cells[j], value));
		});
	}
}

function lines(first, headers, body) {
	const out = [span("first", first), "\n"];
	for (const [name, value] of headers) {
		out.push(span(telling.test(name) ? "name telling" : "name", name + ":"), " " + value + "\n");
	}
	if (body) out.push("\n" + body);
	return out;
}

function span(kind, value) {
	const element = document.createElement("span");
	element.className = kind;
	element.textContent = value;
	return element;
}
