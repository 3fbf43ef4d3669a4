//! A rule for all domains of a host, as an administrator writes it in doppeld.toml: as those of files of rules.

use serde::{Deserialize, Serialize};

use crate::rules::{Action, Direction, Rule, Rules};

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostRule {
    /// What is done.
    pub action: HostAction,
    /// Which way; out if missing.
    #[serde(default)]
    pub direction: HostDirection,
    /// What it is about.
    pub pattern: String,
    /// Whether it is written down.
    #[serde(default)]
    pub log: bool,
    /// Most flows a second; those beyond are denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostAction {
    /// Lets it through.
    Allow,
    /// Does not.
    Deny,
}

/// Which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostDirection {
    /// A domain calls.
    #[default]
    Out,
    /// It is called.
    In,
}

impl HostRule {
    /// Puts it behind these.
    pub(crate) fn add_to(&self, rules: &mut Rules) -> Result<(), String> {
        let action = match self.action {
            HostAction::Allow => Action::Allow,
            HostAction::Deny => Action::Deny,
        };
        let direction = match self.direction {
            HostDirection::Out => Direction::Out,
            HostDirection::In => Direction::In,
        };
        let rule = Rule { pattern: self.pattern.parse()?, action, log: self.log, rate: self.rate };
        rules.add(direction, rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Quotas, Rates};

    fn rule(action: HostAction, direction: HostDirection, pattern: &str) -> HostRule {
        HostRule { action, direction, pattern: pattern.into(), log: false, rate: None }
    }

    #[test]
    fn they_come_before_a_domains_own() {
        let quotas = Quotas {
            rules: vec![
                rule(HostAction::Deny, HostDirection::Out, "10.0.0.0/8"),
                rule(HostAction::Deny, HostDirection::In, "any:22"),
            ],
            ..Quotas::default()
        };
        let mut own = Rules { rates: Rates { outbound: Some(5000), ..Rates::default() }, ..Rules::default() };
        own.outbound.push(Rule::new("10.0.0.1".parse().unwrap(), Action::Allow));
        let all = quotas.before(own.clone()).unwrap();
        assert_eq!(all.outbound.iter().map(|r| r.action).collect::<Vec<_>>(), [Action::Deny, Action::Allow]);
        assert_eq!((all.inbound.len(), all.rates), (1, own.rates));
        assert_eq!(Quotas::default().before(own.clone()).unwrap(), own);
    }

    #[test]
    fn one_that_makes_no_sense_is_named() {
        let why = |rules| Quotas { rules, ..Quotas::default() }.check().unwrap_err();
        let good = rule(HostAction::Allow, HostDirection::Out, "any:53");
        let said = why(vec![good.clone(), rule(HostAction::Deny, HostDirection::Out, "10.0.0.0/99")]);
        assert!(said.starts_with("rules: the 2. (\"10.0.0.0/99\")"), "{said}");
        assert!(why(vec![rule(HostAction::Deny, HostDirection::In, "example.org")]).contains("outbound"));
        assert!(why(vec![HostRule { rate: Some(0), ..good.clone() }]).contains("rate"));
        assert!(why(vec![good; 101]).contains("at most 100"));
    }
}
