import type { components } from "../api/schema";
import { pageUploads } from "../uploads/queue";

/** Uploads of documents of this page; they go on while other pages are looked at. */
export const documentUploads = pageUploads<components["schemas"]["UploadDocumentResponse"]>("/v1/documents");
