use std::sync::{Arc, Mutex};

use tracing::{info, info_span, warn};

use super::*;

/// Lines as they would be written, with a fixed time.
#[derive(Clone)]
struct Kept {
    style: Style,
    lines: Arc<Mutex<Vec<String>>>,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Kept {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        Lines { style: self.style }.on_new_span(attributes, id, context);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let fields = gather(event, &context);
        let now = "2026-01-01T00:00:00.1234Z".parse().unwrap();
        self.lines.lock().unwrap().push(line(self.style, event.metadata(), fields, now));
    }
}

fn logged(style: Style, work: impl FnOnce()) -> Vec<String> {
    let kept = Kept { style, lines: Arc::default() };
    let lines = kept.lines.clone();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(kept), work);
    lines.lock().unwrap().clone()
}

fn something() {
    let pod = info_span!("pod", pod = "default/web", uid = "u-1").entered();
    info!(container = "app", attempt = 2, "container started");
    warn!(error = "no such image", "cannot pull");
    drop(pod);
    info!("relisted");
}

#[test]
fn lines_for_people_begin_with_the_pod_and_end_with_its_uid() {
    assert_eq!(
        logged(Style::Human { colour: false }, something),
        [
            "2026-01-01T00:00:00.123Z INFO  default/web app: container started attempt=2 uid=u-1\n",
            "2026-01-01T00:00:00.123Z WARN  default/web: cannot pull error=\"no such image\" uid=u-1\n",
            "2026-01-01T00:00:00.123Z INFO  relisted\n",
        ]
    );
}

#[test]
fn lines_for_the_journal_have_its_priorities_and_no_time() {
    assert_eq!(
        logged(Style::Journal, something),
        [
            "<6>default/web app: container started attempt=2 uid=u-1\n",
            "<4>default/web: cannot pull error=\"no such image\" uid=u-1\n",
            "<6>relisted\n",
        ]
    );
}

#[test]
fn json_lines_are_objects_with_every_field() {
    let lines = logged(Style::Json, something);
    let first: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(
        first,
        serde_json::json!({
            "time": "2026-01-01T00:00:00.123Z", "level": "info", "target": module_path!(),
            "message": "container started", "pod": "default/web", "uid": "u-1", "container": "app", "attempt": 2,
        })
    );
}

#[test]
fn a_value_with_line_breaks_stays_on_one_line() {
    let lines = logged(Style::Journal, || info!("two\nlines \x1b[31m\"red\""));
    assert_eq!(lines, ["<6>two\\nlines \\u{1b}[31m\"red\"\n"]);
}

#[test]
fn colour_is_for_terminals() {
    let lines = logged(Style::Human { colour: true }, || warn!("careful"));
    assert_eq!(lines, ["\x1b[2m2026-01-01T00:00:00.123Z\x1b[0m \x1b[33mWARN \x1b[0m careful\n"]);
}

#[test]
fn levels_are_podlings_own_unless_modules_are_named() {
    let enabled = |level: Option<&str>, verbose, target: &str, at| {
        let options = LogOptions { format: LogFormat::Auto, level: level.map(str::to_owned), verbose };
        levels(&options).unwrap().would_enable(target, &at)
    };
    assert!(enabled(None, 0, "podling::pod", Level::INFO));
    assert!(!enabled(None, 0, "podling::pod", Level::DEBUG));
    assert!(!enabled(None, 0, "hyper", Level::INFO));
    assert!(enabled(None, 1, "podling::pod", Level::DEBUG));
    assert!(!enabled(None, 2, "hyper", Level::DEBUG));
    assert!(enabled(Some("debug"), 0, "podling::pod", Level::DEBUG));
    assert!(!enabled(Some("error"), 0, "podling::pod", Level::WARN));
    assert!(enabled(Some("info,podling::pod=trace"), 0, "podling::pod", Level::TRACE));
    assert!(enabled(Some("debug"), 0, "hyper", Level::WARN));
}

#[test]
fn a_mistyped_level_is_refused() {
    for level in ["verbose", "info,loud", "podling=loud"] {
        let options = LogOptions { level: Some(level.to_owned()), ..LogOptions::default() };
        assert_eq!(
            levels(&options).unwrap_err().to_string(),
            format!(
                "--log-level: `{level}` is not error, warn, info, debug, trace, off or a list such as \
                 info,podling::pod=debug"
            )
        );
    }
}
