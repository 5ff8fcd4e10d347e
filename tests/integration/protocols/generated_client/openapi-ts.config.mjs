// Node.js asks for the extensions of imported files.
export default {
  input: 'openapi.json',
  output: { path: 'generated', importFileExtension: '.js' },
  plugins: ['@hey-api/client-fetch', '@hey-api/typescript', '@hey-api/sdk'],
};
