// Package conf parses nova.conf as oslo.config does ([Parse]), and edits single options without
// changing any other byte ([File.Set]).
//
// It does not know what an option means or which release reads it (nova), or write files
// (host/edit).
package conf
