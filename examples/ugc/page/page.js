// The page asks the server for the user's standing, sends the user's actions, and keeps
// every part up to date.

import {call} from "./api.js";
import {Drawer} from "./drawer.js";
import {Gauge, amount, attribute, text} from "./gauge.js";
import {Posts} from "./posts.js";
import {Standing, duration} from "./standing.js";
import {Strip} from "./strip.js";

const every = 400; // ms between two questions to the server
const everyAway = 1000; // the same while it does not answer
const heldAfter = 120; // ms after which an attempt without an answer is shown to wait
const hammered = 20;
const labels = {reply: "Reply", like: "Like", post: "Post"};

const byId = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const userField = byId("user");
const posts = new Posts(byId("posts"), byId("post-template"));
const drawer = new Drawer(byId("drawer"));

// An action has its gauge and its strip, how the user stands with it, the last
// refusal, and the attempts that have no answer yet.
const actions = {};
for (const element of document.querySelectorAll("[data-action]")) {
	const name = element.dataset.action;
	actions[name] = {
		name,
		gauge: new Gauge(element),
		strip: new Strip(document.querySelector(`[data-lane="${name}"]`)),
		standing: null,
		refusal: null,
		state: null, // as announced
		pending: new Set(),
	};
}

let user = null; // the user whose standing is shown
let forum = null, version = null; // of the posts that are shown
let away = false;

// Time goes on between the server's answers.

function tick() {
	const now = performance.now();
	for (const a of Object.values(actions)) {
		if (a.standing) show(a, now);
		a.strip.tick(now, calm.matches);
	}
}

function show(a, now) {
	const s = a.standing.at(now);
	const waiting = [...a.pending].filter((p) => now - p.sent >= heldAfter);
	const held = waiting.length;
	a.gauge.show(s, held, calm.matches);
	if (a.name === drawer.action) drawer.table(s);
	const label = labels[a.name];
	const wait = blocked(a, s, now);
	for (const button of buttons(a)) {
		attribute(button, "aria-disabled", wait > 0);
		button.classList.toggle("banned", s.state === "banned");
		if (wait === 0) text(button, waiting.some((p) => p.button === button) ? `${label} waits…` : label);
		else text(button, s.state === "banned" ? `Banned ${duration(wait)}` : `${label} in ${duration(wait)}`);
	}
	announce(a, s, held);
}

// blank shows that nothing is known of the user.
function blank() {
	for (const a of Object.values(actions)) {
		a.gauge.blank();
		for (const button of buttons(a)) {
			attribute(button, "aria-disabled", false);
			button.classList.remove("banned");
			text(button, labels[a.name]);
		}
	}
	drawer.blank();
}

function buttons(a) {
	return document.querySelectorAll(`[data-for="${a.name}"]`);
}

// blocked is how long the buttons sleep: after a refusal until an attempt would pass,
// or would be held until it passes; and through a ban.
function blocked(a, s, now) {
	if (s.state === "banned") return s.retry;
	if (!a.refusal) return 0;
	const wait = a.standing.sent > a.refusal.at ? s.retry : a.refusal.until - now;
	if (wait > a.gauge.maxWait) return wait;
	a.refusal = null;
	return 0;
}

// Words for screen readers. The countdowns are silent.

function announce(a, s, held) {
	const state = held && s.state !== "banned" ? "held" : s.state;
	const before = a.state;
	a.state = state;
	if (before === null || before === state) return;
	const what = {reply: "Replies", like: "Likes", post: "Posts"}[a.name];
	const words = {
		open: `${what}: ${s.left} of ${s.quota} left.`,
		waiting: `${what}: none left. The next is free in ${duration(s.retry)}.`,
		banned: `${what}: banned for ${duration(s.retry)}.`,
		held: `${what}: one waits for its turn.`,
	};
	say(words[state]);
}

let toSay = [];
function say(words) {
	toSay.push(words);
	if (toSay.length > 1) return;
	setTimeout(() => {
		byId("announce").textContent = toSay.join(" ");
		toSay = [];
	}, 100);
}

let noticeEnds;
function notice(words) {
	byId("notice").hidden = false;
	text(byId("notice"), words);
	clearTimeout(noticeEnds);
	noticeEnds = setTimeout(() => { byId("notice").hidden = true; }, 6000);
}

function setAway(is) {
	if (is === away) return;
	away = is;
	document.body.classList.toggle("is-away", away);
	byId("away").hidden = !away;
	byId("away").textContent = away ? "The server does not answer. Trying again every second." : "";
	if (!away) notice("The server answers again.");
}

// Questions to the server.

let asking = false, askAgain = false, timer;

// refresh asks for the standing now, or once more if it is being asked for.
async function refresh() {
	askAgain = asking;
	if (asking) return;
	asking = true;
	clearTimeout(timer);
	do {
		askAgain = false;
		try {
			await ask();
		} catch { // no answer, or one that the page cannot read
			setAway(true);
		}
	} while (askAgain);
	if (actions.reply.standing === null) blank();
	asking = false;
	if (!document.hidden) timer = setTimeout(refresh, away ? everyAway : every);
}

async function ask() {
	const who = user;
	const answer = await call("GET", "status", who, undefined, 3000);
	if (who !== user) {
		askAgain = true;
		return;
	}
	const said = answer.json?.actions;
	if (answer.ok && !Object.keys(actions).every((name) => said?.[name]?.limits)) { // something else answers in its place
		setAway(true);
		return;
	}
	setAway(false);
	if (!answer.ok) {
		userField.setAttribute("aria-invalid", answer.status === 400);
		if (answer.json) notice(answer.json.error);
		return;
	}
	userField.removeAttribute("aria-invalid");
	const first = actions.reply.standing === null;
	for (const a of Object.values(actions)) {
		a.standing = new Standing(said[a.name], answer.sent, answer.came);
	}
	tick();
	if (first) introduce();
	if (answer.json.forum !== forum) { // another server, whose posts are others
		forum = answer.json.forum;
		version = null;
		posts.show([]);
	}
	if (answer.json.version !== version) await list();
}

async function list() {
	const answer = await call("GET", "posts", null, undefined, 3000);
	if (!answer.ok) return;
	posts.show(answer.json.posts);
	version = answer.json.version;
	tick(); // new buttons have a state too
}

function introduce() {
	const now = performance.now();
	const left = Object.values(actions).map((a) => {
		const s = a.standing.at(now);
		return `${s.left} of ${amount(a.name, s.quota)}`;
	});
	say(`${user || "Your address"}: ${left.join(", ")} left.`);
}

// The user.

function changeUser() {
	const name = userField.value.trim();
	if (name === user) return;
	user = name;
	for (const a of Object.values(actions)) {
		a.standing = a.refusal = a.state = null;
		a.gauge.forget();
		a.strip.show(user);
	}
	refresh();
}

let typed;
userField.addEventListener("input", () => {
	clearTimeout(typed);
	typed = setTimeout(changeUser, 250);
});
userField.addEventListener("change", changeUser);

// The user's actions.

// attempt sends an action that a button asked for, and shows its outcome. It returns
// the outcome, null if the limiter made no decision, and whether the server did it.
async function attempt(button, name, path, body) {
	changeUser();
	const a = actions[name], who = user;
	drawer.turn(name);
	const room = a.standing ? a.standing.at(performance.now()).left - a.pending.size : 1;
	const mine = {button, sent: performance.now()};
	a.pending.add(mine);
	let answer;
	try {
		answer = await call("POST", path, who, body);
	} catch {
		setAway(true);
		notice("No answer from the server.");
		refresh();
		return {outcome: null, done: false};
	} finally {
		a.pending.delete(mine);
	}
	drawer.exchange(answer);
	const outcome = outcomeOf(answer, a.gauge.maxWait > 0 && room <= 0 && answer.came - mine.sent >= heldAfter);
	if (outcome) a.strip.add(who, outcome);
	if (answer.status === 429 && who === user) {
		const seconds = Number(answer.header("Retry-After"));
		a.refusal = {at: answer.came, until: answer.came + seconds * 1000};
	} else if (!answer.ok) {
		notice(answer.json?.error ?? answer.json?.detail ?? `The server says ${answer.status}.`);
	}
	refresh();
	return {outcome, done: answer.ok};
}

function outcomeOf(answer, held) {
	if (answer.status === 429) return answer.json?.type?.endsWith("#banned") ? "banned" : "refused";
	if (answer.status === 503 || !answer.header("X-RateLimit-Limit")) return null;
	return held ? "held" : "passed";
}

// asleep reports whether a button that was pressed sleeps.
function asleep(button) {
	return button.getAttribute("aria-disabled") === "true";
}

// An empty field sends its placeholder. The field keeps its text unless it was sent.
document.addEventListener("submit", async (event) => {
	event.preventDefault();
	const form = event.target;
	const button = form.querySelector("button");
	if (asleep(button)) return;
	const field = form.querySelector("input");
	const typed = field.value;
	const body = {text: typed.trim() || field.placeholder};
	const {done} = form.id === "compose"
		? await attempt(button, "post", "posts", body)
		: await attempt(button, "reply", `posts/${form.dataset.reply}/replies`, body);
	if (done && field.value === typed) field.value = "";
});

document.addEventListener("click", async (event) => {
	const button = event.target.closest("button");
	if (!button || asleep(button)) return;
	if (button.dataset.like) attempt(button, "like", `posts/${button.dataset.like}/likes`);
	if (button.id === "hammer") {
		const path = `posts/${posts.newest}/replies`;
		const all = await Promise.all(Array.from({length: hammered}, (_, i) => attempt(button, "reply", path, {text: `hammer ${i + 1}`})));
		const said = ["passed", "refused", "banned"].map((o) => `${all.filter(({outcome}) => outcome === o).length} ${o}`);
		say(`Hammer: ${said.join(", ")}.`);
	}
});

document.addEventListener("visibilitychange", () => {
	if (!document.hidden) refresh();
});

drawer.element.open = matchMedia("(min-width: 900px)").matches;
setInterval(() => {
	if (!document.hidden) tick();
}, 100);
changeUser();
