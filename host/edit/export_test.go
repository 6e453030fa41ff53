package edit

// Private is exported for tests.
var Private = private
