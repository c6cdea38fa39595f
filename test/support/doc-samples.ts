import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';

const root = join(__dirname, '../..');

/** The blocks of a page in that language, in their order. */
export function blocksOf(page: string, language: string): string[] {
  const text = readFileSync(join(root, page), 'utf8');
  return [...text.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'gms'))].map(([, code = '']) => code);
}

/** What the compiler says of these modules under the options of the repository, with the library's source. */
export function diagnosticsOf(modules: readonly string[]): string[] {
  const config = ts.readConfigFile(join(root, 'tsconfig.json'), (path) => ts.sys.readFile(path));
  const { options } = ts.parseJsonConfigFileContent({ ...config.config, include: [], files: ['x.ts'] }, ts.sys, root);
  const files = new Map(modules.map((text, i) => [join(root, `test/e2e/sample-${i + 1}.ts`), text]));
  const disk = ts.createCompilerHost(options);
  const host: ts.CompilerHost = {
    ...disk,
    fileExists: (path) => files.has(path) || disk.fileExists(path),
    readFile: (path) => files.get(path) ?? disk.readFile(path),
    getSourceFile: (path, target, ...rest) => {
      const text = files.get(path);
      return text === undefined ? disk.getSourceFile(path, target, ...rest) : ts.createSourceFile(path, text, target);
    },
  };
  const program = ts.createProgram([...files.keys()], options, host);
  const diagnostics = [...files.keys()].flatMap((path) => {
    const file = program.getSourceFile(path);
    return [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)];
  });
  const format = {
    getCanonicalFileName: (path: string) => path,
    getCurrentDirectory: () => root,
    getNewLine: () => '\n',
  };
  return [...program.getOptionsDiagnostics(), ...diagnostics].map((each) => ts.formatDiagnostic(each, format));
}

/**
 * Runs a sample as a module of the test that calls this, in its turn: `describe` and `it` in it belong to that test file.
 * Returns what it exports.
 *
 * @param load - `require` of the calling file
 */
export function runSample(code: string, load: NodeJS.Require): Record<string, unknown> {
  const { outputText } = ts.transpileModule(code, {
    compilerOptions: {
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.CommonJS,
      experimentalDecorators: true,
      emitDecoratorMetadata: true,
      esModuleInterop: true,
    },
  });
  const module = { exports: {} as Record<string, unknown> };
  // oxlint-disable-next-line typescript/no-implied-eval -- the sample is a file of this repository
  new Function('require', 'module', 'exports', outputText)(load, module, module.exports);
  return module.exports;
}
