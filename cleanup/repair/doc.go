// Package repair carries out units of repair that package cleanup has planned, and undoes them,
// each in one transaction that judges the rows again, together with the unit's allocations in
// Placement. [Repairer] does so; [NewChange] makes a change of host/change of it. It determines
// the outcome of units whose run was interrupted or got no answer.
//
// It does not choose what to repair (cleanup), and writes only what the record of a unit has.
package repair
