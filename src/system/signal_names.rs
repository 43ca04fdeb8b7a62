//! Signals by name, as images (`STOPSIGNAL`) and manifests (`stopSignal`) write them.

/// Names without `SIG`, by Linux number on x86 and arm, from 1.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// Further names of some of them.
const ALIASES: [(&str, i32); 3] = [("IOT", 6), ("CLD", 17), ("POLL", 29)];
/// First and last real-time signal that glibc leaves to programs.
const REAL_TIME: (i32, i32) = (34, 64);

/// Number of a signal given as `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3` or `RTMAX-1`; none for anything else.
pub fn number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return (1..=REAL_TIME.1).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Some(at) = NAMES.iter().position(|n| *n == name) {
        return i32::try_from(at + 1).ok();
    }
    if let Some((_, number)) = ALIASES.iter().find(|(alias, _)| *alias == name) {
        return Some(*number);
    }
    let (base, offset) = match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
        (Some(rest), _) => (REAL_TIME.0, rest),
        (_, Some(rest)) => (REAL_TIME.1, rest),
        _ => return None,
    };
    let offset = if offset.is_empty() { 0 } else { offset.parse::<i32>().ok()? };
    let number = base.checked_add(offset)?;
    (REAL_TIME.0..=REAL_TIME.1).contains(&number).then_some(number)
}

/// Name of a signal as Kubernetes writes it, such as `SIGTERM` or `SIGRTMIN+3`; none for what is no signal.
pub fn name(number: i32) -> Option<String> {
    let at = usize::try_from(number).ok()?.checked_sub(1)?;
    if let Some(name) = NAMES.get(at) {
        return Some(format!("SIG{name}"));
    }
    match number - REAL_TIME.0 {
        0 => Some("SIGRTMIN".to_owned()),
        above if (0..=REAL_TIME.1 - REAL_TIME.0).contains(&above) => Some(format!("SIGRTMIN+{above}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_understood_as_docker_writes_them() {
        for (text, expected) in [
            ("SIGTERM", Some(15)),
            ("term", Some(15)),
            ("9", Some(9)),
            ("SIGRTMIN+3", Some(37)),
            ("RTMAX-1", Some(63)),
            ("SIGWINCH", Some(libc::SIGWINCH)),
            ("SIGPOLL", Some(libc::SIGPOLL)),
            ("SIGNOSUCH", None),
            ("0", None),
            ("RTMIN+99", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }

    #[test]
    fn a_number_has_the_name_that_means_it() {
        for signal in (1..=31).chain(34..=64) {
            let name = name(signal).unwrap();
            assert_eq!(number(&name), Some(signal), "{name}");
        }
        assert_eq!(name(15).as_deref(), Some("SIGTERM"));
        assert_eq!([0, -1, 32, 65].map(name), [None, None, None, None]);
    }
}
