// Requests to the server that served the page.

// A header carries bytes, so a name is sent as UTF-8, without control characters.
function headerValue(name) {
	const text = name.replace(/\p{Cc}/gu, "");
	return String.fromCharCode(...new TextEncoder().encode(text));
}

// call sends a request and returns it with its answer. It throws if no answer comes
// within patience, in milliseconds.
export async function call(method, path, user, body, patience = 10_000) {
	const headers = [];
	if (user) headers.push(["X-User-ID", user]);
	if (body) headers.push(["Content-Type", "application/json"]);
	const request = {method, path: "/" + path, headers, body: body && JSON.stringify(body)};
	const sent = performance.now();
	const answer = await fetch(path, {
		method,
		headers: headers.map(([name, value]) => [name, headerValue(value)]),
		body: request.body,
		cache: "no-store",
		signal: AbortSignal.timeout(patience),
	});
	const text = await answer.text();
	return {
		request, sent, text,
		came: performance.now(),
		ok: answer.ok,
		status: answer.status,
		title: answer.statusText,
		headers: [...answer.headers],
		header: (name) => answer.headers.get(name),
		json: parsed(text),
	};
}

function parsed(text) {
	try {
		return JSON.parse(text);
	} catch {
		return null;
	}
}
