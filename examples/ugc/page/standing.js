// A user's standing with the limits on one action, between two answers of the server.
// The numbers come from the library's Status; this file only lets time pass.

export class Standing {
	// said is the server's answer; sent and came are the instants of question and answer.
	constructor(said, sent, came) {
		this.said = said;
		this.sent = sent;
		this.came = came;
	}

	// at returns the standing at an instant. left counts whole units; level adds the
	// fraction that a bucket or funnel has gained. retry and reset are the milliseconds
	// until one action passes and until the limit is whole.
	at(now) {
		const past = Math.max(0, now - this.came);
		const limits = this.said.limits.map((l) => ahead(l, past));
		const inForce = limits.filter((l) => !l.shadow);
		const binding = inForce.reduce((a, b) => (binds(b, a) ? b : a));
		const ban = {...this.said.ban, retry: Math.max(0, this.said.ban.retry_ms - past)};
		const banned = ban.retry > 0;
		const retry = Math.max(ban.retry, binding.retry);
		return {
			limits, ban, retry,
			limit: binding.limit,
			quota: binding.quota,
			left: banned ? 0 : Math.min(...inForce.map((l) => l.left)),
			level: banned ? 0 : binding.level,
			reset: binding.reset,
			unstarted: binding.unstarted,
			state: banned ? "banned" : retry > 0 ? "waiting" : "open",
		};
	}
}

function ahead(l, past) {
	// A bucket that starts part full fills only from the first action on. Until then it
	// lacks whole units, which a bucket that fills does for an instant only.
	const unstarted = l.unit_ms > 0 && l.reset_ms > 0 && l.reset_ms % l.unit_ms === 0;
	if (unstarted) past = 0;
	const retry = Math.max(0, l.retry_ms - past);
	const reset = Math.max(0, l.reset_ms - past);
	const filled = l.unit_ms > 0 ? l.quota - reset / l.unit_ms : 0; // of a bucket or funnel
	const left = Math.max(l.remaining, Math.floor(filled), l.retry_ms > 0 && retry === 0 ? 1 : 0);
	const level = Math.max(left, filled);
	return {limit: l.limit, quota: l.quota, shadow: l.shadow, retry, reset, left, level, unstarted};
}

// binds reports whether limit a binds rather than b, by the library's rule: the one
// that refuses longest; if none refuses, the one with the least left; then the one
// that takes longer to be whole.
function binds(a, b) {
	if (a.retry !== b.retry) return a.retry > b.retry;
	if (a.left !== b.left) return a.left < b.left;
	return a.reset > b.reset;
}

// whole says when a limit is whole again, for l as in the answer of at.
export function whole(l) {
	if (l.unstarted) return "fills after the first";
	return l.reset > 0 ? `whole in ${duration(l.reset)}` : "whole";
}

// duration says a time in milliseconds in words, rounded up to the second.
export function duration(ms) {
	const s = Math.ceil(ms / 1000);
	if (s < 100) return s + " s";
	if (s < 3600) return two(Math.floor(s / 60), "min", s % 60, "s");
	const min = Math.ceil(s / 60);
	return two(Math.floor(min / 60), "h", min % 60, "min");
}

function two(n, unit, m, smaller) {
	return m === 0 ? `${n} ${unit}` : `${n} ${unit} ${m} ${smaller}`;
}
