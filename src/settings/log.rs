//! How podling logs; `cli::logging` carries it out.

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people on a terminal or in a file, for the journal when stderr is the journal.
    #[default]
    Auto,
    /// For people, with time and level.
    Text,
    /// One JSON object a line.
    Json,
}

/// Format and level of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// How lines look.
    pub format: LogFormat,
    /// A level (`info`) or levels by module (`info,podling::pod=debug`); `None` for the default.
    pub level: Option<String>,
    /// How often `-v` was given: 1 for debug, 2 for trace.
    pub verbose: u8,
}
