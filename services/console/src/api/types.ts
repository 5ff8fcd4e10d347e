/** Short names of the schemas that REST's OpenAPI document defines. */
import type { components } from "./schema";

type Schemas = components["schemas"];
export type Approval = Schemas["Approval"];
export type AgentRequest = Schemas["AgentRequest"];
export type AgentResult = Schemas["AgentResult"];
export type Chart = Schemas["Chart"];
export type Clarification = Schemas["Clarification"];
export type Feedback = Schemas["RunFeedback"];
export type Conversation = Schemas["Conversation"];
export type ModelChoice = Schemas["ModelChoice"];
export type Plan = Schemas["Plan"];
export type PlannedEvent = Schemas["PlannedEvent"];
export type ReportSection = Schemas["ReportSection"];
export type Response = Schemas["OrchestratorResponse"];
export type Outcome = AgentResult["outcome"];
export type Run = Schemas["Run"];
export type RunEvent = Schemas["RunEvent"];
export type RunStatus = Run["status"];
export type Source = Schemas["Source"];
export type Table = Schemas["Table"];
export type TraceEvent = Schemas["TraceEvent"];
export type Usage = Schemas["Usage"];
export type User = Schemas["User"];
