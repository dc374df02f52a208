"""HTTP: the routes, OpenAI's chat protocol, the page, and the gate that every request goes through."""
