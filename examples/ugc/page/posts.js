// The list of posts. Users' words are shown as text and never as markup.

import {text} from "./gauge.js";

export class Posts {
	constructor(list, template) {
		this.list = list;
		this.template = template;
		this.shown = new Map(); // post's id -> element
	}

	// newest is the id of the newest post that is shown, or of the first that there ever was.
	get newest() {
		return this.list.firstElementChild?.dataset.post ?? 1;
	}

	// show brings the list up to date. Posts that are shown already keep their elements,
	// so that the user keeps the focus and a half-typed reply.
	show(posts) {
		const ids = new Set(posts.map((p) => p.id));
		for (const [id, element] of this.shown) {
			if (ids.has(id)) continue;
			element.remove();
			this.shown.delete(id);
		}
		for (const post of posts.toReversed()) {
			if (!this.shown.has(post.id)) {
				const element = this.make(post);
				this.shown.set(post.id, element);
				this.list.prepend(element);
			}
			this.update(this.shown.get(post.id), post);
		}
	}

	make(post) {
		const element = this.template.content.firstElementChild.cloneNode(true);
		element.dataset.post = post.id;
		text(element.querySelector(".author"), post.author);
		text(element.querySelector(".text"), post.text);
		text(element.querySelector(".like"), "Like");
		const input = element.querySelector("input");
		input.setAttribute("aria-label", `Your reply to ${post.author}`);
		element.querySelector("form").dataset.reply = post.id;
		element.querySelector(".like").dataset.like = post.id;
		return element;
	}

	update(element, post) {
		text(element.querySelector(".likes"), post.likes === 1 ? "1 like" : `${post.likes} likes`);
		const earlier = element.querySelector(".earlier");
		earlier.hidden = post.earlier === 0;
		text(earlier, post.earlier === 1 ? "1 earlier reply" : `${post.earlier} earlier replies`);
		const replies = element.querySelector(".replies");
		const last = Number(replies.lastElementChild?.dataset.reply ?? 0);
		for (const reply of post.replies) {
			if (reply.id <= last) continue;
			const item = document.createElement("li");
			item.dataset.reply = reply.id;
			const author = document.createElement("b");
			author.textContent = reply.author;
			const words = document.createElement("span");
			words.textContent = reply.text;
			item.append(author, " ", words);
			replies.append(item);
		}
		while (replies.children.length > post.replies.length) replies.firstElementChild.remove();
	}
}
