import js from '@eslint/js';
import globals from 'globals';

export default [
  js.configs.recommended,
  {
    languageOptions: {ecmaVersion: 2022, sourceType: 'script', globals: globals.browser},
    // A name of a page may be that of something in the browser.
    rules: {'no-redeclare': ['error', {builtinGlobals: false}]},
    linterOptions: {reportUnusedDisableDirectives: 'error'},
  },
  // What the one file has is used by the others.
  {files: ['**/page.js'], rules: {'no-unused-vars': ['error', {vars: 'local'}]}},
  {files: ['**/live.js', '**/trace.js'], languageOptions: {globals: {$: 'readonly', make: 'readonly'}}},
];
