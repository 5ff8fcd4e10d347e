/** Typed calls of REST, by the types of its OpenAPI document. */
import createClient from "openapi-fetch";

import { apiError } from "./errors";
import { request } from "./http";
import type { paths } from "./schema";

export const api = createClient<paths, "application/json">({ fetch: request, headers: { Accept: "application/json" } });

interface Answer<Data> {
  data?: Data;
  error?: unknown;
  response: globalThis.Response;
}

/** The data of a call. Raises `ApiError` if it was refused. */
export async function dataOf<Data>(call: Promise<Answer<Data>>): Promise<Data> {
  const { data, error, response } = await call;
  if (!response.ok || data === undefined) throw apiError(response, error);
  return data;
}
