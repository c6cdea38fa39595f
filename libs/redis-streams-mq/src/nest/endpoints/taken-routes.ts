import { RequestMethod, type Type } from '@nestjs/common';
import { METHOD_METADATA, PATH_METADATA } from '@nestjs/common/constants.js';
import { MetadataScanner, RouterModule, type ModulesContainer, type Routes } from '@nestjs/core';
import { normalPath } from './endpoint-options.js';

type ModuleRef = ModulesContainer extends Map<string, infer M> ? M : never;

/** Who serves GET at a path: `Controller.method`, and the controller's class. */
export interface RouteOwner {
  readonly name: string;
  readonly controller: Type;
}

/** The GET routes of these modules by path, without global prefix and versions, which apply to ours as well. */
export function getRoutes(modules: readonly ModuleRef[]): ReadonlyMap<string, RouteOwner> {
  const scanner = new MetadataScanner();
  const prefixes = modulePrefixes(modules);
  const routes = new Map<string, RouteOwner>();
  for (const module of modules) {
    const prefix = prefixes.get(module.metatype) ?? '';
    for (const { metatype } of module.controllers.values()) {
      if (typeof metatype !== 'function') continue;
      const controller = metatype as Type;
      for (const base of texts(Reflect.getMetadata(PATH_METADATA, controller))) {
        for (const { path, name } of methodsOf(controller, scanner)) {
          const owner = { name: `${controller.name}.${name}`, controller };
          const url = normalPath(`${prefix}/${base}/${path}`);
          if (!routes.has(url)) routes.set(url, owner);
        }
      }
    }
  }
  return routes;
}

function* methodsOf(controller: Type, scanner: MetadataScanner): Generator<{ path: string; name: string }> {
  const prototype = controller.prototype as object;
  for (const name of scanner.getAllMethodNames(prototype)) {
    const method = Reflect.get(prototype, name) as object;
    const verb: unknown = Reflect.getMetadata(METHOD_METADATA, method);
    if (verb !== RequestMethod.GET && verb !== RequestMethod.ALL) continue;
    for (const path of texts(Reflect.getMetadata(PATH_METADATA, method))) yield { path, name };
  }
}

/** `RouterModule` puts prefixes where they can be read only later than we must decide: read what it was given instead. */
function modulePrefixes(modules: readonly ModuleRef[]): ReadonlyMap<unknown, string> {
  const prefixes = new Map<unknown, string>();
  const walk = (routes: readonly (Routes[number] | Type)[], parent: string): void => {
    for (const route of routes) {
      if (typeof route === 'function') {
        prefixes.set(route, parent);
        continue;
      }
      const path = `${parent}/${route.path}`;
      if (route.module !== undefined) prefixes.set(route.module, path);
      if (route.children !== undefined) walk(route.children, path);
    }
  };
  for (const module of modules) {
    if (module.metatype !== RouterModule) continue;
    for (const { instance } of module.providers.values()) if (Array.isArray(instance)) walk(instance as Routes, '');
  }
  return prefixes;
}

function texts(value: unknown): string[] {
  return [value].flat().filter((each) => typeof each === 'string');
}
