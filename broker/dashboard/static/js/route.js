// The state of the view is in the URL's fragment: #/jobs/ID?span=…, so that it can be sent on and gone back to.
import { useEffect, useState } from "./html.js";

function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decode);
  return { view: parts[0] || "now", id: parts[1] || "", query: new URLSearchParams(query) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Where the page is; follows the fragment. */
export function useRoute() {
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const follow = () => setRoute(read());
    addEventListener("hashchange", follow);
    follow(); // it may have changed since the first drawing
    return () => removeEventListener("hashchange", follow);
  }, []);
  return route;
}

/** The link to a view, with a query of what is not empty. */
export function link(view, id = "", query = {}) {
  const filled = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const text = new URLSearchParams(filled).toString();
  return `#/${view}${id ? `/${encodeURIComponent(id)}` : ""}${text ? `?${text}` : ""}`;
}

/** Go there; `replace` leaves no entry in the history, as for each letter of a search. */
export function go(to, { replace = false } = {}) {
  if (!replace) {
    location.hash = to;
    return;
  }
  history.replaceState(null, "", to);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
