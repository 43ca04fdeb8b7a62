//! The log: lines for people, for the journal, or as JSON, on stderr.
//!
//! What happens to a pod is logged inside a span with the fields `pod`, `uid` and `container`, or with
//! these as fields of the event. Lines for people begin with pod and container and end with the uid, so
//! that the eye finds the first and a search finds the last.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;

use jiff::{Timestamp, Unit};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::settings::{LogFormat, LogOptions};

/// The log level cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "--log-level: `{0}` is not error, warn, info, debug, trace, off or a list such as info,podling::pod=debug"
)]
pub struct LevelError(String);

/// Sets the process's log up. The first call counts; later ones only check their level.
pub fn init(options: &LogOptions) -> Result<(), LevelError> {
    let levels = levels(options)?;
    let lines = Lines { style: Style::choose(options.format) };
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(levels));
    // One that is set already stays.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

/// podling at the level asked for, the libraries below it at warnings unless named.
fn levels(options: &LogOptions) -> Result<Targets, LevelError> {
    let verbose = match options.verbose {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let own = |level: LevelFilter| {
        Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("podling", level)
    };
    let Some(text) = options.level.as_deref().filter(|t| !t.trim().is_empty()) else {
        return Ok(own(verbose));
    };
    if let Ok(level) = text.trim().parse::<LevelFilter>() {
        return Ok(own(level.max(if options.verbose > 0 { verbose } else { level })));
    }
    let wrong = |_| LevelError(text.to_owned());
    let targets: Targets = text.parse().map_err(wrong)?;
    // A bare word reads as a module at every level; a mistyped level must not pass for one.
    let known = |part: &str| part.contains('=') || part.contains("::") || part.parse::<LevelFilter>().is_ok();
    if text.split(',').map(str::trim).all(known) { Ok(targets) } else { Err(LevelError(text.to_owned())) }
}

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// Time, level, text; in colour or not.
    Human { colour: bool },
    /// A priority for journald, which adds the time itself.
    Journal,
    /// One object a line.
    Json,
}

impl Style {
    fn choose(format: LogFormat) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        match format {
            LogFormat::Json => Style::Json,
            LogFormat::Auto if !terminal && stderr_is_journal() => Style::Journal,
            LogFormat::Auto | LogFormat::Text => Style::Human { colour },
        }
    }
}

/// systemd names device and inode of the stream it gave; a child whose stderr was turned elsewhere
/// still has the variable.
fn stderr_is_journal() -> bool {
    let Some(stream) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    rustix::fs::fstat(std::io::stderr().as_fd())
        .is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// What a line says: the fields of its spans, outermost first, then its own.
#[derive(Clone, Debug, Default)]
struct Fields {
    message: String,
    named: Vec<(&'static str, Value)>,
}

impl Fields {
    fn set(&mut self, field: &Field, value: Value) {
        if field.name() == "message" {
            self.message = plain(&value);
            return;
        }
        self.named.retain(|(name, _)| *name != field.name());
        self.named.push((field.name(), value));
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.named.iter().position(|(n, _)| *n == name)?;
        Some(plain(&self.named.remove(at).1))
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value.into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value.into());
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value.into());
    }
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.set(field, value.to_string().into());
    }
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.set(field, format!("{value:?}").into());
    }
}

struct Lines {
    style: Style,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let line = line(self.style, event.metadata(), gather(event, &context), Timestamp::now());
        // In one write, so that lines of several threads stay whole. A full disk must not stop podling.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

fn gather<S: Subscriber + for<'a> LookupSpan<'a>>(event: &Event<'_>, context: &Context<'_, S>) -> Fields {
    let mut all = Fields::default();
    for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
        if let Some(fields) = span.extensions().get::<Fields>() {
            for (name, value) in &fields.named {
                all.named.retain(|(n, _)| n != name);
                all.named.push((name, value.clone()));
            }
        }
    }
    event.record(&mut all);
    all
}

fn line(style: Style, about: &Metadata<'_>, fields: Fields, now: Timestamp) -> String {
    let now = now.round(Unit::Millisecond).unwrap_or(now);
    match style {
        Style::Json => json(about, fields, now),
        Style::Journal => format!("<{}>{}\n", priority(about.level()), text(fields)),
        Style::Human { colour: false } => format!("{now:.3} {:5} {}\n", about.level(), text(fields)),
        Style::Human { colour: true } => {
            let (level, shade) = (about.level(), shade(about.level()));
            format!("\x1b[2m{now:.3}\x1b[0m \x1b[{shade}m{level:5}\x1b[0m {}\n", text(fields))
        }
    }
}

/// syslog's number for a level.
fn priority(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

fn shade(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        _ => 34,
    }
}

/// `default/web app: message key=value uid=…`, on one line whatever the values hold.
fn text(mut fields: Fields) -> String {
    let mut out = String::new();
    let (pod, container, uid) = (fields.take("pod"), fields.take("container"), fields.take("uid"));
    let place = [pod, container].into_iter().flatten().collect::<Vec<_>>().join(" ");
    if !place.is_empty() {
        out.push_str(&place);
        out.push_str(": ");
    }
    out.push_str(&fields.message);
    let last = uid.map(|uid| ("uid", Value::from(uid)));
    for (name, value) in fields.named.into_iter().chain(last) {
        let value = plain(&value);
        let quoted = value.is_empty() || value.contains([' ', '"', '=']);
        // Writing to a string cannot fail.
        let _ = if quoted { write!(out, " {name}={value:?}") } else { write!(out, " {name}={value}") };
    }
    // A value with line breaks or terminal codes must not look like a line of its own.
    if out.contains(char::is_control) { out.escape_debug().to_string().replace("\\\"", "\"") } else { out }
}

fn json(about: &Metadata<'_>, fields: Fields, now: Timestamp) -> String {
    let mut object = Map::new();
    object.insert("time".to_owned(), format!("{now:.3}").into());
    object.insert("level".to_owned(), about.level().as_str().to_lowercase().into());
    object.insert("target".to_owned(), about.target().into());
    object.insert("message".to_owned(), fields.message.into());
    for (name, value) in fields.named {
        object.insert(name.to_owned(), value);
    }
    let mut line = Value::Object(object).to_string();
    line.push('\n');
    line
}

#[cfg(test)]
mod tests;
