// A real OpenID provider for tests: code flow with PKCE and device flow, with pages that tests drive.
// It prints its issuer URL once it listens, and ends when its standard input does. What it says of
// people is set by `PUT /test/people/SUBJECT` with a JSON object of claims, forgotten by `DELETE /test/people`.
import { createServer } from "node:http";
import Provider from "oidc-provider";

const people = new Map();
const server = createServer();
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
const grants = ["authorization_code", "urn:ietf:params:oauth:grant-type:device_code"];
const own = {
  grant_types: grants,
  redirect_uris: ["http://127.0.0.1/callback", "http://127.0.0.1/sign-in/openid"],
  application_type: "native",
};

const provider = new Provider(issuer, {
  clients: [
    { ...own, client_id: "bos", token_endpoint_auth_method: "none" },
    { ...own, client_id: "bos-secret", client_secret: "a secret: of %the test+client" },
    { ...own, client_id: "other", token_endpoint_auth_method: "none" },
  ],
  features: { deviceFlow: { enabled: true }, devInteractions: { enabled: true } },
  claims: {
    openid: ["sub"],
    profile: ["name", "preferred_username", "roles", "groups"],
    email: ["email", "email_verified"],
  },
  scopes: ["openid", "profile", "email"],
  pkce: { required: () => true },
  findAccount: (_, sub) => ({
    accountId: sub,
    claims: () => ({ preferred_username: sub, name: sub, ...people.get(sub), sub }),
  }),
});
const provide = provider.callback();

server.on("request", (request, response) => {
  if (request.method === "DELETE" && request.url === "/test/people") {
    people.clear();
    response.writeHead(204).end();
    return;
  }
  const person = /^\/test\/people\/([^/]+)$/.exec(request.url);
  if (request.method !== "PUT" || person === null) {
    provide(request, response);
    return;
  }
  let body = "";
  request.setEncoding("utf8");
  request.on("data", (text) => (body += text));
  request.on("end", () => {
    people.set(decodeURIComponent(person[1]), JSON.parse(body));
    response.writeHead(204).end();
  });
});
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
console.log(`ISSUER ${issuer}`);
