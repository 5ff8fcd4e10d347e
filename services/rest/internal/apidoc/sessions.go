package apidoc

import "strconv"

const (
	tagBrowser  = "BrowserSession"
	csrfHeader  = "Bos-Browser"
	sessionPath = "/v1/browserSession"
)

// sessions adds the paths by which a browser is signed in: they are about its cookie, so no RPC says
// what they do.
func (b *builder) sessions() {
	b.tags[tagBrowser] = tagTexts[tagBrowser]
	b.schemas.done["BrowserSession"] = sessionSchema()
	session := object{"$ref": "#/components/schemas/BrowserSession"}
	text := func(about string, limit int) object {
		return object{"type": "string", "description": about, "maxLength": limit}
	}
	get := sessionOperation("getBrowserSession", "Whether the browser's cookie signs a user in",
		"And which sign-in methods there are. Renews the tokens of the session if that is due.", session, nil)
	b.paths[sessionPath] = object{"get": get}
	post := func(verb, name, about, more string, answer, properties object, required ...string) object {
		if required == nil {
			required = []string{}
		}
		operation := sessionOperation(name, about, more, answer, object{
			"type": "object", "additionalProperties": false, "required": required, "properties": properties,
		})
		b.paths[sessionPath+":"+verb] = object{"post": operation}
		return operation
	}
	post("logIn", "logInBrowser", "Sign in by password or by API key",
		"Sets the cookie of the session: HttpOnly, SameSite=Strict, and Secure unless it is for this machine alone.",
		session, object{
			"username": text("The username, or the e-mail address of the account.", 254),
			"password": text("The password.", 256),
			"api_key":  text("An API key, in place of both.", 4096),
		})
	post("redeem", "redeemBrowserLink", "Sign in by a link of `bos console`",
		"Each code works once.", session, object{"code": text("The code of the link.", 256)}, "code")
	post("beginOpenId", "beginBrowserOpenId", "Begin to sign in by the OpenID provider",
		"It sends the browser back to the page `/sign-in/openid`.",
		closed(object{"authorization_url": text("Where the browser goes on.", 8192)}, "authorization_url"), object{})
	post("finishOpenId", "finishBrowserOpenId", "Sign in by what the OpenID provider sent the browser back with",
		"Only in the browser in which it was begun.", session, object{
			"code":   text("The parameter `code`.", 4096),
			"state":  text("The parameter `state`.", 256),
			"issuer": text("The parameter `iss`, if there is one.", 1024),
		}, "code", "state")
	post("logOut", "logOutBrowser", "Sign out", "Ends the session, and removes the cookie.", session, object{})
	link := post("createLink", "createBrowserLink", "Make a link that signs a browser in",
		"On the machine itself alone, for who holds an API key: the page `/#sign-in=CODE` redeems the code.",
		closed(object{
			"code":        text("The code, for a quarter of an hour.", 256),
			"expire_time": object{"type": "string", "format": "date-time", "description": "Until when."},
		}, "code", "expire_time"), object{})
	delete(link, "security")
	delete(link, "parameters")
}

func sessionOperation(name, about, more string, answer, body object) object {
	responses := object{"200": object{
		"description": "Done.", "content": object{jsonType: object{"schema": answer}},
	}}
	for _, status := range []int{400, 401, 403, 405, 408, 413, 415, 429, 431, 499, 500, 501, 503, 504} {
		responses[strconv.Itoa(status)] = object{"$ref": "#/components/responses/" + strconv.Itoa(status)}
	}
	operation := object{
		"operationId": name, "tags": []string{tagBrowser}, "summary": about, "description": more,
		"security": []any{}, "responses": responses,
	}
	if body != nil {
		operation["parameters"] = []any{object{
			"name": csrfHeader, "in": "header", "required": true, "schema": object{"type": "string", "enum": []string{"1"}},
			"description": "Says that a page of this origin asks: others cannot send it.",
		}}
		operation["requestBody"] = object{"required": true, "content": object{jsonType: object{"schema": body}}}
	}
	return operation
}

func sessionSchema() object {
	flag := func(about string) object { return object{"type": "boolean", "description": about} }
	openID := closed(object{"name": object{"type": "string", "description": "Its name to show."}}, "name")
	openID["description"] = "The OpenID provider, if there is one."
	ways := closed(object{
		"password": flag("By username and password."),
		"api_key":  flag("By an API key."),
		"link":     flag("By a link of `bos console`."),
		"open_id":  openID,
	}, "password", "api_key", "link")
	ways["description"] = "Available sign-in methods."
	return closed(object{
		"state": object{
			"type": "string", "enum": []string{"SIGNED_IN", "SIGNED_OUT", "NOT_NEEDED"},
			"description": "NOT_NEEDED: authentication is off.",
		},
		"expire_time": object{
			"type": "string", "format": "date-time",
			"description": "When the session is over unless it is used before; set with SIGNED_IN.",
		},
		"sign_in": ways,
		"context": object{
			"type": "object", "description": "Context that the page sends with each question, if the installation has some.",
		},
		"trace_url": object{
			"type": "string", "description": "Address of a trace, with {trace_id} in the place of its id, if it is known.",
		},
		"dashboards_url": object{
			"type": "string", "description": "Base address of Grafana, for pages of operators, if the installation has one.",
		},
	}, "state", "sign_in")
}

func closed(properties object, required ...string) object {
	return object{
		"type": "object", "additionalProperties": false, "required": required, "properties": properties,
	}
}
