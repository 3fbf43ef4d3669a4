//! Networks: those that were made by themselves ([`table`]), and what is asked of all of them.
//!
//! A network is an owner's, as the domains on it are: two owners' networks of one name are two. Those that a domain made by
//! naming them are written down nowhere: they are there as long as a domain names them.

pub mod leases;
pub mod membership;
pub mod objects;
pub mod subnets;
pub mod table;
