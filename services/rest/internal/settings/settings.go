// Package settings reads the environment; no other package does.
package settings

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
)

// Seconds is a duration, written in seconds as in all of Bos.
type Seconds float64

// Duration converts it to Go's type.
func (s Seconds) Duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// Secret is text that is redacted in output.
type Secret string

// String hides the text from logs and messages.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "**********"
}

// GoString hides it from %#v as well.
func (s Secret) GoString() string { return s.String() }

// Settings of the process. The tag `about` is the description in the README; a test compares the two.
// Lower bounds of numbers are tags as well.
type Settings struct {
	Host            string   `env:"BOS_REST_HOST" envDefault:"127.0.0.1" about:"Address to bind; another than loopback wants a key"`
	Port            uint16   `env:"BOS_REST_PORT" envDefault:"8000" about:"Port to bind; 0 takes a free one"`
	GatewayTarget   string   `env:"BOS_REST_GATEWAY_TARGET" about:"Where the gateway is: host:port, dns:///name:port or unix:path; required"`
	IdentityTarget  string   `env:"BOS_REST_IDENTITY_TARGET" about:"Where identity is; unset leaves its paths out"`
	MemoryTarget    string   `env:"BOS_REST_MEMORY_TARGET" about:"Where memory is; unset leaves its paths out"`
	DocumentsTarget string   `env:"BOS_REST_DOCUMENTS_TARGET" about:"Where documents is; unset leaves its paths out"`
	FilesTarget     string   `env:"BOS_REST_FILES_TARGET" about:"Where the files agent is, whose workspaces are offered; unset leaves its paths out"`
	ProtocolsTarget string   `env:"BOS_REST_PROTOCOLS_TARGET" about:"Address (host:port) of the protocols service, which speaks OpenAI's API, MCP and A2A; unset leaves their paths out"`
	StaticKey       Secret   `env:"BOS_AUTH_STATIC_KEY" about:"Key that callers send as a bearer token; unset leaves the check to the gateway"`
	StaticKeysFile  string   `env:"BOS_AUTH_STATIC_KEYS_FILE" about:"File of further such keys, one a line, of at least 16 characters each. It may be replaced while it runs: keys that it no longer holds are refused"`
	FilesRefresh    Seconds  `env:"BOS_AUTH_FILES_REFRESH_S" envDefault:"5" above:"0" about:"Time between two looks at whether a file of keys changed"`
	SigningKeyFile  string   `env:"BOS_REST_SIGNING_KEY_FILE" about:"Ed25519 key (PEM) by which the services know calls of this gateway and believe it the address of a client; their BOS_AUTH_PROXY_PUBLIC_KEYS holds the public one. May be replaced while it runs; needed with identity beyond loopback"`
	CertFile        string   `env:"BOS_TLS_CERT_FILE" about:"Certificate (PEM, with its chain) that this gateway shows to the services; unset speaks plain text with them. It and the next two may be replaced while it runs"`
	KeyFile         string   `env:"BOS_TLS_KEY_FILE" about:"Its private key (PEM)"`
	CAFile          string   `env:"BOS_TLS_CA_FILE" about:"Authorities (PEM) that the certificates of services come from"`
	TrustedProxies  []string `env:"BOS_REST_TRUSTED_PROXIES" about:"Networks of proxies in front, such as 10.0.0.0/8, comma-separated: what they say in X-Forwarded-For is believed. Name a proxy on this machine (127.0.0.0/8, ::1/128): the clients of one that is not named count as people of this machine, who may register"`
	TrustTraces     bool     `env:"BOS_REST_TRUST_TRACES" envDefault:"false" about:"Continue the traces that callers name, for a proxy in front that sets traceparent itself; otherwise they are linked to and no more"`
	AllowedHosts    []string `env:"BOS_REST_ALLOWED_HOSTS" about:"Names that the Host header may hold, comma-separated; unset means loopback names on a loopback address, any name elsewhere"`
	AllowedOrigins  []string `env:"BOS_REST_ALLOWED_ORIGINS" about:"Other web origins whose pages may call, such as https://bos.example.org"`

	SessionKeysFile string `env:"BOS_REST_SESSION_KEYS_FILE" about:"Keys that seal the session cookies of browsers, one a line, each 32 bytes in Base64 (openssl rand -base64 32): the first seals, all open. The same for all instances; may be replaced while they run. Unset makes one at the start, so that sessions of browsers end with the process"`
	ConsoleContext  string `env:"BOS_REST_CONSOLE_CONTEXT" about:"JSON object that the web console sends as the context of each question, such as the fixed today of sample data"`
	TraceURL        string `env:"BOS_REST_TRACE_URL" about:"Address of a trace where traces are kept, with {trace_id} in the place of its id, such as http://localhost:16686/trace/{trace_id}: the web console links runs to it; unset shows the id alone"`

	BrandName     string `env:"BOS_REST_BRAND_NAME" about:"Name that the web console shows in place of Bos, also as the title of its pages; at most 40 characters"`
	BrandLogoFile string `env:"BOS_REST_BRAND_LOGO_FILE" about:"Logo and icon of the web console: a PNG or SVG file of at most 256 KiB, read at the start"`
	GrafanaURL    string `env:"BOS_REST_GRAFANA_URL" about:"Base address of Grafana, such as https://grafana.example.org, whose dashboards the console's pages of operators link to; unset leaves the links out"`

	MaxBodyBytes   int64 `env:"BOS_REST_MAX_BODY_BYTES" envDefault:"1048576" least:"1024" about:"Largest request body"`
	MaxHeaderBytes int   `env:"BOS_REST_MAX_HEADER_BYTES" envDefault:"16384" least:"1024" about:"Largest request line and headers together"`
	MaxConnections int   `env:"BOS_REST_MAX_CONNECTIONS" envDefault:"8192" least:"1" about:"Maximum concurrent connections; beyond it the connection idle longest is closed"`
	MaxRequests    int   `env:"BOS_REST_MAX_REQUESTS" envDefault:"1000" least:"1" about:"Maximum concurrent requests, not counting streams. Beyond it, authenticated callers displace unknown ones, and unknown ones those with more requests; others get 429"`
	MaxStreams     int   `env:"BOS_REST_MAX_STREAMS" envDefault:"1000" least:"1" about:"Streams at once, likewise"`

	MaxBodies      int     `env:"BOS_REST_MAX_BODIES" envDefault:"1000" least:"1" about:"Maximum concurrent request bodies. Beyond it, or beyond the bytes, the body with the oldest progress of the address (IPv6: the /64) with most bodies gets 429"`
	MaxBodiesBytes int64   `env:"BOS_REST_MAX_BODIES_BYTES" envDefault:"67108864" least:"65536" about:"Memory for bodies under way"`
	MaxUploadBytes int64   `env:"BOS_REST_MAX_UPLOAD_BYTES" envDefault:"34603008" least:"65536" about:"Largest upload of a document, which passes through piece by piece; a little more than BOS_DOCUMENTS_MAX_DOCUMENT_BYTES"`
	MinBodyRate    float64 `env:"BOS_REST_MIN_BODY_RATE" envDefault:"1024" above:"0" about:"Bytes a second that a body must make on the average, after two seconds"`

	CallTimeout       Seconds `env:"BOS_REST_CALL_TIMEOUT_S" envDefault:"90" above:"0" about:"Time for a call, except asking and watching"`
	RunTimeout        Seconds `env:"BOS_REST_RUN_TIMEOUT_S" envDefault:"3600" above:"0" about:"Time to wait for a run; a stream that takes longer goes on by itself"`
	UploadTimeout     Seconds `env:"BOS_REST_UPLOAD_TIMEOUT_S" envDefault:"300" above:"0" about:"Time for an upload of a document to arrive, at BOS_REST_MIN_BODY_RATE at least"`
	ReadTimeout       Seconds `env:"BOS_REST_READ_TIMEOUT_S" envDefault:"10" above:"0" about:"Time for the headers, and again for the whole body, to arrive"`
	WriteTimeout      Seconds `env:"BOS_REST_WRITE_TIMEOUT_S" envDefault:"10" above:"0" about:"Time for a client to take an event or an answer before it is dropped"`
	IdleTimeout       Seconds `env:"BOS_REST_IDLE_TIMEOUT_S" envDefault:"120" above:"0" about:"How long a connection without a request is kept"`
	Heartbeat         Seconds `env:"BOS_REST_HEARTBEAT_S" envDefault:"15" above:"0" about:"Time between comments on a silent stream"`
	ReconnectAttempts int     `env:"BOS_REST_RECONNECT_ATTEMPTS" envDefault:"12" least:"1" about:"Attempts in a row to go on with a stream that the gateway interrupted"`
	DrainDelay        Seconds `env:"BOS_REST_DRAIN_DELAY_S" envDefault:"0" least:"0" about:"Wait between not ready and refusing requests; covers load-balancer lag"`
	Grace             Seconds `env:"BOS_REST_GRACE_S" envDefault:"10" least:"0" about:"Time for requests in flight at shutdown"`

	MetricsAddress string `env:"BOS_REST_METRICS_ADDRESS" about:"Bind address (host:port) of the unauthenticated metrics endpoint; unset: on the main port if that is loopback, otherwise off"`
	StopWithStdin  bool   `env:"BOS_REST_STOP_WITH_STDIN" envDefault:"false" about:"Stop when standard input closes: for a parent process that may die"`

	LogLevel         string  `env:"BOS_LOG_LEVEL" envDefault:"info" about:"debug, info, warning or error"`
	OTLPEndpoint     string  `env:"BOS_OTLP_ENDPOINT" about:"Where traces go (OTLP over gRPC), such as http://127.0.0.1:4317"`
	TraceSampleRatio float64 `env:"BOS_TRACE_SAMPLE_RATIO" envDefault:"1.0" about:"Share of new traces that is recorded"`
}

// Load reads the settings from environment, NAME to value. An empty value counts as unset.
func Load(environment map[string]string) (Settings, error) {
	given := map[string]string{}
	for name, value := range environment {
		if value != "" {
			given[name] = value
		}
	}
	var s Settings
	if err := env.ParseWithOptions(&s, env.Options{Environment: given}); err != nil {
		return Settings{}, fmt.Errorf("Configuration is not usable. %w", hideValues(err))
	}
	if problems := s.problems(); len(problems) > 0 {
		return Settings{}, fmt.Errorf("Configuration is not usable. %s", strings.Join(problems, "; "))
	}
	return s, nil
}

// Loopback reports whether only this machine can reach the service.
func (s Settings) Loopback() bool {
	if s.Host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(strings.Trim(s.Host, "[]"))
	return err == nil && address.IsLoopback()
}

// Proxies returns the networks whose X-Forwarded-For is trusted.
func (s Settings) Proxies() ([]netip.Prefix, error) {
	var found []netip.Prefix
	for _, text := range s.TrustedProxies {
		network, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		found = append(found, network.Masked())
	}
	return found, nil
}

func (s Settings) problems() []string {
	var found []string
	wrong := func(bad bool, text string) {
		if bad {
			found = append(found, text)
		}
	}
	wrong(s.GatewayTarget == "", "BOS_REST_GATEWAY_TARGET: must be set (where the gateway is)")
	wrong((s.CertFile == "") != (s.KeyFile == "") || (s.CertFile == "") != (s.CAFile == ""),
		"BOS_TLS_CERT_FILE, BOS_TLS_KEY_FILE and BOS_TLS_CA_FILE: must be set together")
	wrong(s.StaticKey != "" && len(s.StaticKey) < 16,
		"BOS_AUTH_STATIC_KEY: must have at least 16 characters")
	wrong(!s.Loopback() && s.StaticKey == "" && s.StaticKeysFile == "" && s.IdentityTarget == "",
		"BOS_REST_HOST: binding "+s.Host+" would offer the service to the network without "+
			"authentication; set BOS_AUTH_STATIC_KEY or BOS_REST_IDENTITY_TARGET, or bind 127.0.0.1")
	wrong(!s.Loopback() && s.IdentityTarget != "" && s.SigningKeyFile == "",
		"BOS_REST_SIGNING_KEY_FILE: must be set with BOS_REST_IDENTITY_TARGET beyond loopback, or "+
			"identity takes all clients for one and slows them down together; make a key with "+
			"`openssl genpkey -algorithm ed25519` and give identity its public part")
	wrong(s.ConsoleContext != "" && !isObject(s.ConsoleContext),
		"BOS_REST_CONSOLE_CONTEXT: must be a JSON object")
	wrong(s.TraceURL != "" && !isAddress(s.TraceURL),
		"BOS_REST_TRACE_URL: write an address of http or https with {trace_id} in it")
	wrong(s.GrafanaURL != "" && !isBaseAddress(s.GrafanaURL),
		"BOS_REST_GRAFANA_URL: write it as http(s)://host[:port][/path], without user, query and fragment")
	_, err := s.Proxies()
	wrong(err != nil, "BOS_REST_TRUSTED_PROXIES: write each as a network, such as 10.0.0.0/8")
	found = append(found, s.outOfBounds()...)
	for _, origin := range s.AllowedOrigins {
		parsed, err := url.Parse(origin)
		wrong(err != nil || parsed.Scheme == "" || parsed.Host == "" || parsed.Path != "",
			"BOS_REST_ALLOWED_ORIGINS: write each as scheme://host[:port], without a path")
	}
	switch s.LogLevel {
	case "debug", "info", "warning", "error":
	default:
		found = append(found, "BOS_LOG_LEVEL: must be debug, info, warning or error")
	}
	return found
}

func isAddress(text string) bool {
	parsed, err := url.Parse(strings.ReplaceAll(text, "{trace_id}", "0"))
	return err == nil && (parsed.Scheme == "http" || parsed.Scheme == "https") && parsed.Host != "" &&
		strings.Contains(text, "{trace_id}")
}

func isBaseAddress(text string) bool {
	parsed, err := url.Parse(text)
	return err == nil && (parsed.Scheme == "https" || parsed.Scheme == "http") && parsed.Host != "" &&
		parsed.User == nil && parsed.RawQuery == "" && !parsed.ForceQuery && parsed.Fragment == ""
}

func isObject(text string) bool {
	var found map[string]any
	return json.Unmarshal([]byte(text), &found) == nil && found != nil
}

// outOfBounds names the numbers that are smaller than their tags allow.
func (s Settings) outOfBounds() []string {
	var found []string
	values := reflect.ValueOf(s)
	for i := range values.NumField() {
		tag := values.Type().Field(i).Tag
		if bound, given := tag.Lookup("least"); given && number(values.Field(i)) < asNumber(bound) {
			found = append(found, tag.Get("env")+": must be at least "+bound)
		}
		if bound, given := tag.Lookup("above"); given && number(values.Field(i)) <= asNumber(bound) {
			found = append(found, tag.Get("env")+": must be above "+bound)
		}
	}
	return found
}

func number(value reflect.Value) float64 {
	if value.CanInt() {
		return float64(value.Int())
	}
	return value.Float()
}

// asNumber parses a bound; a tag that is no number is a bug in this file.
func asNumber(bound string) float64 {
	read, err := strconv.ParseFloat(bound, 64)
	if err != nil {
		panic(err)
	}
	return read
}

// hideValues keeps the names of invalid variables and removes their values.
func hideValues(err error) error {
	aggregate, ok := err.(env.AggregateError)
	if !ok {
		return fmt.Errorf("a variable cannot be read")
	}
	var texts []string
	for _, one := range aggregate.Errors {
		if parse, ok := one.(env.ParseError); ok {
			texts = append(texts, variable(parse.Name)+": must be "+kindOf(parse.Type))
			continue
		}
		texts = append(texts, "a variable cannot be read")
	}
	return fmt.Errorf("%s", strings.Join(texts, "; "))
}

func kindOf(wanted reflect.Type) string {
	switch wanted.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	default:
		return "a whole number"
	}
}
