// Package repair carries out units of repair that package cleanup has planned, and undoes them:
// each in one transaction that judges the rows again, together with the unit's allocations in
// Placement. It determines the outcome of units whose run was interrupted or got no answer.
package repair
