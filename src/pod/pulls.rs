//! Starts that wait for an image.

use std::time::Duration;

use super::board::EventType;
use super::status::Waiting;
use super::worker::{Held, Worker};
use crate::runtime::{StartError, Started};
use crate::system::clock::{self, Moment};

/// A pull under way is looked at again after this, should its end be missed.
const LOOK: Duration = Duration::from_secs(30);
/// How long a failure is shown as such before it is shown as a back-off.
const SHOWN: Duration = Duration::from_secs(1);

impl Worker {
    /// Has the starts that wait for images tried now.
    pub(super) fn expire_pulls(&mut self) {
        for name in self.asked.keys() {
            if let Some(held) = self.held.get_mut(name) {
                held.until = clock::now();
            }
        }
    }

    /// Waits for an image that is on its way, or holds the start.
    pub(super) fn hold_start(&mut self, name: &str, asked: Moment, e: &StartError) {
        if !e.pulling && e.until.is_none() {
            self.asked.remove(name);
            return self.hold_error(name, e);
        }
        let first = self.asked.insert(name.to_owned(), asked).is_none();
        let why = Waiting { reason: e.reason.into(), message: e.message.clone() };
        if e.pulling {
            if first {
                self.ctx.board.event(EventType::Normal, "Pulling", Some(&self.key), &e.message);
            }
            let until = clock::now() + LOOK;
            self.held.insert(name.to_owned(), Held { until, delay: LOOK, why });
            return;
        }
        // The failure itself is shown for a moment, then the wait for the next try.
        let backing_off = e.reason == "ImagePullBackOff";
        self.hold(name, why, SHOWN);
        if let (Some(held), Some(until), true) = (self.held.get_mut(name), e.until, backing_off) {
            held.until = until.max(clock::now() + SHOWN);
        }
        // The next try begins with a new question.
        self.asked.insert(name.to_owned(), clock::now());
    }

    pub(super) fn tell_pulled(&self, created: &Started) {
        let Some(pulled) = &created.pulled else { return };
        let text = format!(
            "pulled image {} in {:.1}s ({:.1} MB)",
            created.image,
            pulled.took.as_secs_f64(),
            pulled.size as f64 / 1e6
        );
        self.ctx.board.event(EventType::Normal, "Pulled", Some(&self.key), text);
    }
}
